# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportMissingImports=false
"""Products of a few rows with a large weight in any type, as sums over parts of their depth.

A program reads some rows of the weight over a part of their depth, all at once into registers, and multiplies them by
every row of the input. The weight is asked for before the kernel waits for the one before it (`overlap`), so that its
latency is hidden. Parts of the depth keep the whole device busy with small weights, too. Whoever uses the product adds
them up: that is a kernel which would be there anyway.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.halves import first_half, second_half
from specpair.kernels.overlap import begin, overlaps

MOST_ROWS = 6
"""On an H100 five rows were faster than by cuBLAS, and eight slower: there the arithmetic takes longer than reading the
weight. Six were not measured."""
LANES = 256
"""Elements that a warp reads together: 16 bytes of bfloat16 for each thread."""


class Tile(NamedTuple):
    """How the work is divided."""

    warps: int
    columns: int
    """Rows of the weight that each warp reads: columns of the output."""
    steps: int
    """Times LANES: columns of the weight that it reads."""


ONE = Tile(8, 1, 4)
"""For one row."""
MANY = Tile(4, 2, 4)
"""For more: what is fed is read and converted once for all columns of a warp."""


@triton.jit
def _multiply(
    x,
    weight,
    out,
    width,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    WARPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    IS_PACKED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    IS_EVEN: tl.constexpr = DEPTH % (STEPS * LANES) == 0
    # The compiler gives a warp to each place of the first axis, and lanes of it to the second.
    columns = tl.program_id(0) * COLUMNS * WARPS + tl.arange(0, WARPS)[:, None]
    part = tl.program_id(1)
    places = tl.broadcast_to(part * STEPS * LANES + tl.arange(0, LANES)[None, :], (WARPS, LANES))
    held = ()
    for step in tl.static_range(STEPS):
        for column in tl.static_range(COLUMNS):
            row = columns + column * WARPS
            mask = row < width if IS_EVEN else (row < width) & (places + step * LANES < DEPTH)
            start = weight + row.to(tl.int64) * DEPTH + step * LANES
            read = tl.load(start + places, mask=mask, other=0, eviction_policy="evict_first")
            held = held + (read,)  # noqa: RUF005 (the compiler knows no other way)
    if OVERLAPS:
        begin()
    rows = tl.arange(0, BLOCK_ROWS)
    totals = (tl.zeros((WARPS, BLOCK_ROWS), dtype=tl.float32),) * COLUMNS
    for row in tl.static_range(ROWS):
        sums = (tl.zeros((WARPS, LANES), dtype=tl.float32),) * COLUMNS
        for step in tl.static_range(STEPS):
            start = x + row * DEPTH + step * LANES
            if IS_EVEN:
                fed = tl.load(start + places)
            else:
                fed = tl.load(start + places, mask=places + step * LANES < DEPTH, other=0)
            added = ()
            for column in tl.static_range(COLUMNS):
                read = held[step * COLUMNS + column]
                if IS_PACKED:
                    total = sums[column] + first_half(read, True) * first_half(fed, True)
                    total += second_half(read, True) * second_half(fed, True)
                else:
                    total = sums[column] + read.to(tl.float32) * fed.to(tl.float32)
                added = added + (total,)  # noqa: RUF005
            sums = added
        added = ()
        for column in tl.static_range(COLUMNS):
            product = tl.sum(sums[column], 1)[:, None]
            added = added + (tl.where(rows[None, :] == row, product, totals[column]),)  # noqa: RUF005
        totals = added
    for column in tl.static_range(COLUMNS):
        row = columns + column * WARPS
        kept = (part * ROWS + rows[None, :]).to(tl.int64) * width + row
        tl.store(out + kept, totals[column], mask=(row < width) & (rows < ROWS)[None, :])


def multiply(x: Tensor, weight: Tensor, tile: Tile | None = None) -> Tensor:
    """The parts of `x` `[rows, depth]` times the transpose of `weight` `[width, depth]`: `[parts, rows, width]`, whose
    sum over the parts is the product. They are float32 where the kernel made them."""
    row_count, depth = x.shape
    width = len(weight)
    assert row_count <= MOST_ROWS
    tile = tile or tile_for(row_count)
    is_packed = x.dtype == torch.bfloat16 and depth % 2 == 0
    if is_packed:  # to take integers apart is half the work of converting numbers
        x, weight, depth = x.view(torch.int32), weight.view(torch.int32), depth // 2
    lanes = LANES // 2 if is_packed else LANES
    part_count = triton.cdiv(depth, tile.steps * lanes)
    out = torch.empty(part_count, row_count, width, dtype=torch.float32, device=x.device)
    kernel: Any = _multiply
    kernel[triton.cdiv(width, tile.warps * tile.columns), part_count](
        x,
        weight,
        out,
        width,
        ROWS=row_count,
        DEPTH=depth,
        WARPS=tile.warps,
        COLUMNS=tile.columns,
        STEPS=tile.steps,
        LANES=lanes,
        IS_PACKED=is_packed,
        BLOCK_ROWS=triton.next_power_of_2(row_count),
        OVERLAPS=overlaps(x.device),
        launch_pdl=overlaps(x.device),
        num_warps=tile.warps,
    )
    return out


def tile_for(row_count: int) -> Tile:
    """How to divide the work."""
    return ONE if row_count == 1 else MANY
