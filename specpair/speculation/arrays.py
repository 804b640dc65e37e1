"""One code for arrays of numpy, whose operations on a CPU cost half, and tensors, which can be on a device.

What the rules of verification need is called alike in both libraries, but for what is here.
"""

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any
"""An array of numpy or a tensor. What goes into a function together is of one kind, and so is what comes out."""


def native(tensor: Tensor) -> Array:
    """The same data: numpy's on a CPU, where it is."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def placed(array: np.ndarray, device: torch.device) -> Array:
    """What goes together with `native` tensors of a device."""
    return array if device.type == "cpu" else torch.from_numpy(array).to(device)


def library(array: Array) -> ModuleType:
    return np if isinstance(array, np.ndarray) else torch


def counting(count: int, like: Array) -> Array:
    """0 .. count - 1, int64, where `like` is."""
    return np.arange(count) if isinstance(like, np.ndarray) else torch.arange(count, device=like.device)


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Float64, whatever was there, where `like` is."""
    if isinstance(like, np.ndarray):
        return np.empty(shape)
    return torch.empty(shape, dtype=torch.float64, device=like.device)


def at_least(numbers: Array, least: float) -> Array:
    return np.maximum(numbers, least) if isinstance(numbers, np.ndarray) else numbers.clamp_min(least)


def at_most(numbers: Array, most: float) -> Array:
    return np.minimum(numbers, most) if isinstance(numbers, np.ndarray) else numbers.clamp_max(most)


def to_doubles(numbers: Array) -> Array:
    """float64."""
    return numbers.astype(np.float64, copy=False) if isinstance(numbers, np.ndarray) else numbers.double()


def to_integers(numbers: Array) -> Array:
    """int64, rounded towards 0."""
    return numbers.astype(np.int64) if isinstance(numbers, np.ndarray) else numbers.long()


def largest_of(rows: Array) -> Array:
    """[N] of rows [N, V]."""
    return np.maximum.reduce(rows, -1) if isinstance(rows, np.ndarray) else rows.amax(-1)


def running_largest(rows: Array) -> Array:
    """The largest entry so far [N, V] of rows [N, V]."""
    return np.maximum.accumulate(rows, -1) if isinstance(rows, np.ndarray) else rows.cummax(-1).values


def first_above(ascending: Array, numbers: Array) -> Array:
    """The first entry of each ascending row [N, V] that is above its number [N], or else the last one: int64 [N]."""
    last = ascending.shape[1] - 1
    if isinstance(ascending, np.ndarray):
        found = [row.searchsorted(number, "right") for row, number in zip(ascending, numbers, strict=True)]
        return np.minimum(found, last)
    return torch.searchsorted(ascending, numbers[:, None], right=True)[:, 0].clamp_max(last)


def may_be_set(flags: Array) -> bool:
    """Whether any flag may be set. On a device the answer is yes: to know better, it would have to be waited for."""
    return bool(flags.any()) if isinstance(flags, np.ndarray) else True
