"""Memory in pages of 2 MB, where the system offers them (Linux: transparent huge pages), for what every pass reads.

A pass reads all weights in order. In pages of 4 KB a processor has to look up the next page every 64 lines of memory,
and does not foresee what is read there.
"""

import mmap
from contextlib import suppress

import torch
from torch import Tensor

PAGE = 1 << 21
CHUNK = 32 * PAGE
"""Only what is used of it counts, in whole pages."""
LINE = 64
"""Bytes that a processor reads at once: tensors begin with a line."""


class LargePages:
    """Grows by chunks. A chunk is given back once no tensor in it is left, the newest one with this object at the
    earliest."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def copy(self, tensor: Tensor) -> Tensor:
        """The same numbers in this memory, one after the other."""
        end = self._used + tensor.nbytes
        if end > len(self._chunk):
            self._chunk, self._used, end = chunk_of(tensor.nbytes), 0, tensor.nbytes
        copied = self._chunk[self._used : end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        self._used = rounded_up(end, LINE)
        return copied


def chunk_of(size: int) -> Tensor:
    """At least so many bytes, from the beginning of a page on."""
    memory = mmap.mmap(-1, rounded_up(max(size, CHUNK), PAGE) + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = torch.frombuffer(memory, dtype=torch.uint8)
    return numbers[-numbers.data_ptr() % PAGE :]


def rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
