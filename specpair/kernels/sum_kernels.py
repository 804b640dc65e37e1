# pyright: reportMissingImports=false
"""What adds up the parts of a product and goes on from there: to the next norm, or through the gates of an MLP."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.overlap import begin, overlaps
from specpair.kernels.parts import add_up

GATES = 512
"""Columns that one program opens."""


@triton.jit
def _add_and_normalise(
    hidden,
    parts,
    norm,
    added,
    normal,
    epsilon,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    inside = lanes < SIZE
    scale = tl.load(norm + lanes, mask=inside, other=0.0).to(tl.float32)
    if OVERLAPS:
        begin()
    total = tl.load(hidden + row * SIZE + lanes, mask=inside, other=0.0)
    if PARTS:
        stride = tl.num_programs(0).to(tl.int64) * SIZE
        total = (total.to(tl.float32) + add_up(parts + row * SIZE, lanes, inside, stride, PARTS)).to(total.dtype)
        tl.store(added + row * SIZE + lanes, total, mask=inside)
    exact = total.to(tl.float32)
    shrink = tl.rsqrt(tl.sum(exact * exact, 0) / SIZE + epsilon)
    tl.store(normal + row * SIZE + lanes, (exact * shrink * scale).to(total.dtype), mask=inside)


def add_and_normalise(hidden: Tensor, parts: Tensor | None, norm: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """`hidden` `[rows, hidden]` and the sum of `parts` `[parts, rows, hidden]`, and what RMSNorm makes of it with the
    weight `norm` `[hidden]`."""
    row_count, size = hidden.shape
    normal = torch.empty_like(hidden)
    added = hidden if parts is None else torch.empty_like(hidden)
    block = triton.next_power_of_2(size)
    kernel: Any = _add_and_normalise
    kernel[(row_count,)](
        hidden,
        hidden if parts is None else parts,
        norm,
        added,
        normal,
        epsilon,
        SIZE=size,
        PARTS=0 if parts is None else len(parts),
        BLOCK=block,
        OVERLAPS=overlaps(hidden.device),
        launch_pdl=overlaps(hidden.device),
        num_warps=max(1, min(16, block // 256)),
    )
    return added, normal


@triton.jit
def _open_gates(parts, out, width, PARTS: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr):
    if OVERLAPS:
        begin()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    stride = tl.num_programs(0).to(tl.int64) * width * 2
    start = parts + row * width * 2
    gate = add_up(start, columns, inside, stride, PARTS)
    passed = add_up(start + width, columns, inside, stride, PARTS)
    opened = gate / (1 + tl.exp(-gate)) * passed
    tl.store(out + row * width + columns, opened.to(out.dtype.element_ty), mask=inside)


def open_gates(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """SiLU of the first half of the columns of the sum of `parts` `[parts, rows, 2 width]` times the second half:
    `[rows, width]`."""
    part_count, row_count, width = parts.shape
    out = torch.empty(row_count, width // 2, dtype=dtype, device=parts.device)
    kernel: Any = _open_gates
    kernel[row_count, triton.cdiv(width // 2, GATES)](
        parts,
        out,
        width // 2,
        PARTS=part_count,
        BLOCK=GATES,
        OVERLAPS=overlaps(parts.device),
        launch_pdl=overlaps(parts.device),
        num_warps=2,
    )
    return out
