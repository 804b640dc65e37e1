# pyright: reportMissingImports=false
"""Rotates queries and keys by their positions and stores keys and values in the cache, in one kernel for all heads."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.overlap import begin, overlaps
from specpair.kernels.parts import add_up


@triton.jit
def _rotate_and_store(
    parts,
    bias,
    positions,
    slots,
    cosines,
    sines,
    query_norm,
    key_norm,
    query,
    keys,
    values,
    epsilon,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    width = (HEADS + 2 * KEY_HEADS) * SIZE
    stride = tl.num_programs(0).to(tl.int64) * width
    lanes = tl.arange(0, BLOCK)
    inside = lanes < SIZE
    start = parts + row * width + head * SIZE
    # No kernel that overlaps with others writes these.
    slot = tl.load(slots + row)
    turn = tl.load(positions + row) * SIZE
    cosine = tl.load(cosines + turn + lanes, mask=inside, other=0.0).to(tl.float32)
    sine = tl.load(sines + turn + lanes, mask=inside, other=0.0).to(tl.float32)
    if OVERLAPS:
        begin()
    exact = add_up(start, lanes, inside, stride, PARTS)
    if HAS_BIAS:
        exact += tl.load(bias + head * SIZE + lanes, mask=inside, other=0.0).to(tl.float32)
    if head >= HEADS + KEY_HEADS:
        place = (slot * KEY_HEADS + head - HEADS - KEY_HEADS) * SIZE
        tl.store(values + place + lanes, exact.to(values.dtype.element_ty), mask=inside)
    else:
        partners = (lanes + SIZE // 2) % SIZE
        partner = add_up(start, partners, inside, stride, PARTS)
        if HAS_BIAS:
            partner += tl.load(bias + head * SIZE + partners, mask=inside, other=0.0).to(tl.float32)
        if HAS_NORM:
            norm = query_norm if head < HEADS else key_norm
            shrink = tl.rsqrt(tl.sum(exact * exact, 0) / SIZE + epsilon)
            exact *= shrink * tl.load(norm + lanes, mask=inside, other=0.0).to(tl.float32)
            partner *= shrink * tl.load(norm + partners, mask=inside, other=0.0).to(tl.float32)
        turned = (exact * cosine + partner * sine).to(keys.dtype.element_ty)
        if head < HEADS:
            tl.store(query + (row * HEADS + head) * SIZE + lanes, turned, mask=inside)
        else:
            tl.store(keys + (slot * KEY_HEADS + head - HEADS) * SIZE + lanes, turned, mask=inside)


def rotate_and_store(
    parts: Tensor,
    bias: Tensor | None,
    positions: Tensor,
    slots: Tensor,
    tables: tuple[Tensor, Tensor],
    norms: tuple[Tensor, Tensor] | None,
    epsilon: float,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Queries `[rows, heads, size]`, rotated; the keys, rotated, and the values go to their `slots` `[rows]` of `keys`
    and `values` `[slots, key heads, size]`.

    `parts` `[parts, rows, (heads + 2 key heads) size]` are those of queries, keys and values, to which `bias` is
    added. `tables` are cosines and sines `[positions, size]`, the sine of the first half negated. With `norms` `[size]`
    each, queries and keys are normalised before (RMSNorm).
    """
    part_count, row_count, width = parts.shape
    _, key_heads, size = keys.shape
    heads = width // size - 2 * key_heads
    query = torch.empty(row_count, heads, size, dtype=keys.dtype, device=keys.device)
    query_norm, key_norm = norms or (query, query)
    kernel: Any = _rotate_and_store
    kernel[row_count, heads + 2 * key_heads](
        parts,
        query if bias is None else bias,
        positions,
        slots,
        *tables,
        query_norm,
        key_norm,
        query,
        keys,
        values,
        epsilon,
        HEADS=heads,
        KEY_HEADS=key_heads,
        SIZE=size,
        PARTS=part_count,
        HAS_BIAS=bias is not None,
        HAS_NORM=norms is not None,
        BLOCK=triton.next_power_of_2(size),
        OVERLAPS=overlaps(keys.device),
        launch_pdl=overlaps(keys.device),
        num_warps=1,
    )
    return query
