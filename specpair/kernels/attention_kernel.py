# pyright: reportAssignmentType=false, reportMissingImports=false, reportOperatorIssue=false
"""Attention of single rows over the blocks of a paged cache, by block tables on the device.

The keys of a row are divided into parts of about equal length, which programs of their own attend to; a second kernel
joins them by their log-sum-exp (Flash-Decoding). How many parts there are depends on the number of rows and heads, and
how long they are on the length of the row. So lengths are no shape, and in passes of one size a row's bits do not
depend on the others.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.overlap import begin, overlaps

STEP_BYTES = 1 << 14
"""Of the keys of one step, and of its values. They are in shared memory, of which every GPU has three times as much."""
MOST_KEYS_OF_A_STEP = 128
FEWEST_ROWS = 16
"""Query heads of one key head are padded to so many, the smallest height of a tile of the tensor cores."""
PROGRAMS = 1024
"""Programs that keep a device busy: some for each multiprocessor of a large one, so that each has one step of keys."""
MOST_PARTS = 16
MOST_KEYS = 1 << 30
"""More than any row sees."""


@triton.jit
def _part_of(first, end, part, PARTS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Where a part of the keys from `first` to `end` starts and ends."""
    share = tl.cdiv(tl.cdiv(end - first, PARTS), BLOCK_SIZE) * BLOCK_SIZE
    start = first + part * share
    return start, tl.minimum(start + share, end)


@triton.jit
def _blocks_of(table, places, end, BLOCK_SIZE: tl.constexpr):
    """The blocks that hold the keys at these places before `end`."""
    return tl.load(table + places // BLOCK_SIZE, mask=places < end, other=0)


@triton.jit
def _over_keys(
    asked,
    keys,
    values,
    table,
    blocks,
    start,
    end,
    lanes,
    key_head,
    scale,
    KEY_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Attention over the keys from `start` to `end`, of which the first are in `blocks`: the largest score of each
    head, the sum of the exponentials of scores less that, and the values weighted by them."""
    key_places = tl.arange(0, blocks.shape[0])
    PRECISION: tl.constexpr = "ieee" if asked.dtype == tl.float32 else "tf32"
    most = tl.full((asked.shape[0],), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((asked.shape[0],), dtype=tl.float32)
    total = tl.zeros(asked.shape, dtype=tl.float32)
    for first in range(start, end, key_places.shape[0]):
        places = first + key_places
        seen = places < end
        held = ((blocks.to(tl.int64) * BLOCK_SIZE + places % BLOCK_SIZE) * KEY_HEADS + key_head) * SIZE
        mask = seen[:, None] & (lanes < SIZE)[None, :]
        key = tl.load(keys + held[:, None] + lanes[None, :], mask=mask, other=0.0)
        value = tl.load(values + held[:, None] + lanes[None, :], mask=mask, other=0.0)
        blocks = _blocks_of(table, places + key_places.shape[0], end, BLOCK_SIZE)
        scores = tl.dot(asked, tl.trans(key), input_precision=PRECISION) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        shrink = tl.exp(most - higher)
        exponents = tl.exp(scores - higher[:, None])
        mass = mass * shrink + tl.sum(exponents, 1)
        total = total * shrink[:, None] + tl.dot(exponents.to(value.dtype), value, input_precision=PRECISION)
        most = higher
    return most, mass, total


@triton.jit
def _attend(
    query,
    keys,
    values,
    tables,
    positions,
    out,
    partial,
    weights,
    scale,
    window,
    table_width,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    part = tl.program_id(2)
    members = tl.arange(0, BLOCK_HEADS)
    lanes = tl.arange(0, BLOCK)
    has_head = members < HEADS // KEY_HEADS
    heads = row * HEADS + key_head * (HEADS // KEY_HEADS) + members
    # No kernel that overlaps with others writes positions and tables.
    end = tl.load(positions + row) + 1
    part_start, part_end = _part_of(tl.maximum(end - window, 0), end, part, PARTS, BLOCK_SIZE)
    table = tables + row * table_width
    blocks = _blocks_of(table, part_start + tl.arange(0, BLOCK_KEYS), part_end, BLOCK_SIZE)
    if OVERLAPS:
        begin()
    mask = has_head[:, None] & (lanes < SIZE)[None, :]
    asked = tl.load(query + heads[:, None] * SIZE + lanes[None, :], mask=mask, other=0.0)
    most, mass, total = _over_keys(
        asked, keys, values, table, blocks, part_start, part_end, lanes, key_head, scale, KEY_HEADS, SIZE, BLOCK_SIZE
    )
    is_empty = mass == 0
    total = total / tl.where(is_empty, 1.0, mass)[:, None]
    if PARTS == 1:
        tl.store(out + heads[:, None] * SIZE + lanes[None, :], total.to(out.dtype.element_ty), mask=mask)
    else:
        logarithm = tl.where(is_empty, float("-inf"), most + tl.log(tl.where(is_empty, 1.0, mass)))
        tl.store(weights + heads * PARTS + part, logarithm, mask=has_head)
        tl.store(partial + (heads * PARTS + part)[:, None] * SIZE + lanes[None, :], total, mask=mask)


@triton.jit
def _join(partial, weights, out, SIZE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr):
    if OVERLAPS:
        begin()
    head = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, PARTS)
    lanes = tl.arange(0, BLOCK)
    logarithms = tl.load(weights + head * PARTS + parts)
    shares = tl.exp(logarithms - tl.max(logarithms, 0))
    held = tl.load(
        partial + (head * PARTS + parts)[:, None] * SIZE + lanes[None, :], mask=lanes[None, :] < SIZE, other=0.0
    )
    joined = tl.sum(held * shares[:, None], 0) / tl.sum(shares, 0)
    tl.store(out + head * SIZE + lanes, joined.to(out.dtype.element_ty), mask=lanes < SIZE)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    positions: Tensor,
    *,
    block_size: int,
    scale: float,
    window: int | None,
) -> Tensor:
    """Attention of `query` `[rows, heads, size]`, each over the keys up to its own position, which are in the blocks of
    its table `[rows, blocks]` int32: `[rows, heads, size]`. Keys and values are `[slots, key heads, size]`."""
    row_count, heads, size = query.shape
    key_heads = keys.size(1)
    parts = part_count(row_count * key_heads)
    out = torch.empty_like(query)
    partial, weights = out, out
    if parts > 1:
        partial = torch.empty(row_count, heads, parts, size, dtype=torch.float32, device=query.device)
        weights = torch.empty(row_count, heads, parts, dtype=torch.float32, device=query.device)
    block = triton.next_power_of_2(size)
    overlap = {"OVERLAPS": overlaps(query.device), "launch_pdl": overlaps(query.device)}
    attention: Any = _attend
    attention[row_count, key_heads, parts](
        query,
        keys,
        values,
        tables,
        positions,
        out,
        partial,
        weights,
        scale,
        MOST_KEYS if window is None else window,
        tables.stride(0),
        HEADS=heads,
        KEY_HEADS=key_heads,
        SIZE=size,
        BLOCK_SIZE=block_size,
        PARTS=parts,
        BLOCK_HEADS=max(FEWEST_ROWS, triton.next_power_of_2(heads // key_heads)),
        BLOCK_KEYS=min(MOST_KEYS_OF_A_STEP, max(16, STEP_BYTES // (block * query.element_size()))),
        BLOCK=max(block, 16),
        **overlap,
        num_warps=4,
        num_stages=2,
    )
    if parts > 1:
        join: Any = _join
        join[(row_count * heads,)](partial, weights, out, SIZE=size, PARTS=parts, BLOCK=block, **overlap, num_warps=1)
    return out


def part_count(program_count: int) -> int:
    """Into how many parts keys are divided if there are so many programs without: a power of two."""
    wanted = max(1, PROGRAMS // program_count)
    return min(MOST_PARTS, 1 << (wanted.bit_length() - 1))
