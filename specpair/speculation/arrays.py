"""Functions that work on numpy arrays and on torch tensors.

numpy operations on a CPU take half the time of torch's; tensors can be on a device. The functions that verification
needs have the same names in both libraries, except those here.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any
"""A numpy array or a tensor. All arguments of one call are of the same kind, and so is the result."""


def native(tensor: Tensor) -> Array:
    """The same data: as a numpy array on a CPU, else the tensor."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def placed(array: np.ndarray, device: torch.device) -> Array:
    """The array in the same form as `native` tensors of the device."""
    if device.type == "cpu":
        return array
    return pinned(array, device).to(device, non_blocking=True)


def pinned(array: np.ndarray, device: torch.device) -> Tensor:
    """The array in memory from which a copy to the device waits for nothing: from ordinary memory it waits until the
    device has done all that was asked of it."""
    tensor = torch.from_numpy(np.require(array, requirements="W"))
    return tensor.pin_memory() if device.type == "cuda" else tensor


def on_host(parts: Sequence[Array]) -> list[np.ndarray]:
    """Arrays [N] of integers or flags of one kind as int64 on the host, brought from a device together: in one
    synchronisation."""
    if isinstance(parts[0], np.ndarray):
        return [part.astype(np.int64, copy=False) for part in parts]
    joined = torch.cat([part.long() for part in parts]).cpu().numpy()
    return np.split(joined, np.cumsum([len(part) for part in parts])[:-1])


def in_kind_of(like: Array, array: np.ndarray) -> Array:
    """The array as it is, or as a tensor on the device of `like` if that is one."""
    return torch.from_numpy(array).to(like.device) if isinstance(like, Tensor) else array


def library(array: Array) -> ModuleType:
    return np if isinstance(array, np.ndarray) else torch


def counting(count: int, like: Array) -> Array:
    """0 .. count - 1, int64, of the kind and on the device of `like`."""
    return np.arange(count) if isinstance(like, np.ndarray) else torch.arange(count, device=like.device)


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """An uninitialised float64 array of the kind and on the device of `like`."""
    if isinstance(like, np.ndarray):
        return np.empty(shape)
    return torch.empty(shape, dtype=torch.float64, device=like.device)


def at_least(numbers: Array, least: float) -> Array:
    return np.maximum(numbers, least) if isinstance(numbers, np.ndarray) else numbers.clamp_min(least)


def at_most(numbers: Array, most: float) -> Array:
    return np.minimum(numbers, most) if isinstance(numbers, np.ndarray) else numbers.clamp_max(most)


def to_doubles(numbers: Array) -> Array:
    """Converts to float64."""
    return numbers.astype(np.float64, copy=False) if isinstance(numbers, np.ndarray) else numbers.double()


def to_integers(numbers: Array) -> Array:
    """Converts to int64, rounding towards 0."""
    return numbers.astype(np.int64) if isinstance(numbers, np.ndarray) else numbers.long()


def largest_of(rows: Array) -> Array:
    """The largest entry [N] of each row [N, V]."""
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
    """Whether any flag may be set. Always true on a device, because the exact answer would need a synchronisation."""
    return bool(flags.any()) if isinstance(flags, np.ndarray) else True
