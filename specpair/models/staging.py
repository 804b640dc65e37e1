"""Numbers that the host writes and that work on the device reads first.

The host writes them into memory that the device can read, and the work itself begins with a copy of them. So work that
is captured is one call to the device, with nothing before it in its stream.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Copy: TypeAlias = Callable[[Tensor, Tensor], object]
"""Copies a tensor to which the host writes to one of the device, of the same size."""


def copy_by_torch(source: Tensor, target: Tensor) -> Tensor:
    return target.copy_(source, non_blocking=True)


class Staging:
    """Memory for so many numbers of 64 bits, on both sides."""

    def __init__(self, size: int, device: torch.device, copy: Copy = copy_by_torch, on_device: Tensor | None = None):
        """`on_device` is given where two of these fill the same tensor."""
        self.on_device = torch.zeros(size, dtype=torch.int64, device=device) if on_device is None else on_device
        """What `load` has copied."""
        self._copy = copy
        self._source = torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._numbers = self._source.numpy()
        self._is_read = torch.cuda.Event() if device.type == "cuda" else None

    def writable(self) -> np.ndarray:
        """The numbers on the host, int64 `[size]`. Waits until the work that read them last is done."""
        if self._is_read is not None:
            self._is_read.synchronize()
        return self._numbers

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """What the work makes, which loads the numbers."""
        try:
            return work()
        finally:  # some of it may have begun before it failed
            if self._is_read is not None:
                self._is_read.record()

    def load(self, count: int) -> None:
        """Copies the first numbers. Part of the work, on the device alone."""
        self._copy(self._source[:count], self.on_device[:count])
