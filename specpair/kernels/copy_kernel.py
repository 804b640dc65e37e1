# pyright: reportMissingImports=false
"""A copy from memory of the host, by a kernel: a graph of kernels alone starts sooner than one after a copy.

The kernels of a pass read positions, slots and tables before they wait for the one before them (`overlap`). So the
kernel that follows this one must not overlap with it: it is torch's, which looks up the embeddings.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.overlap import begin, overlaps

BLOCK = 1024
"""Numbers that one program copies."""


@triton.jit
def _copy(source, target, count, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr):
    if OVERLAPS:
        begin()
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    # Volatile: the host has written since the last time, so nothing that was cached may be used.
    tl.store(target + places, tl.load(source + places, mask=inside, other=0, volatile=True), mask=inside)


def copy(source: Tensor, target: Tensor) -> None:
    """Copies numbers of any kind. `source` may be pinned memory of the host, both must be contiguous."""
    kernel: Any = _copy
    overlap = overlaps(target.device)
    kernel[(triton.cdiv(target.numel(), BLOCK),)](
        source, target, target.numel(), BLOCK=BLOCK, OVERLAPS=overlap, launch_pdl=overlap, num_warps=4
    )
