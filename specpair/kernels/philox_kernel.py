# pyright: reportGeneralTypeIssues=false, reportMissingImports=false
"""Philox4x64-10 in one kernel. With torch's operators it is two hundred, which take most of a step that is drawn with
shared noise."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCKS = 128
"""Counters of one program."""
WORDS = 4
"""Of one counter."""


@triton.jit(do_not_specialize=["domain", "count"])
def _philox(seeds, steps, blocks, out, domain, count, BLOCKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = places < count
    first = (tl.load(blocks + row * count + places, mask=inside, other=0) + 1).to(tl.uint64)
    second = tl.zeros_like(first) + tl.load(steps + row).to(tl.uint64)
    third = tl.zeros_like(first)
    fourth = tl.zeros_like(first)
    key = tl.zeros_like(first) + tl.load(seeds + row).to(tl.uint64)
    other_key = tl.zeros_like(first) + domain.to(tl.uint64)
    multiplier = tl.zeros_like(first) + 0xD2E7470EE14C6C93
    other_multiplier = tl.zeros_like(first) + 0xCA5A826395121157
    for _ in tl.static_range(10):
        high, low = tl.umulhi(multiplier, first), multiplier * first
        other_high, other_low = tl.umulhi(other_multiplier, third), other_multiplier * third
        first, second = other_high ^ second ^ key, other_low
        third, fourth = high ^ fourth ^ other_key, low
        key += 0x9E3779B97F4A7C15
        other_key += 0xBB67AE8584CAA73B
    start = out + (row * count + places) * 4
    tl.store(start, first.to(tl.int64, bitcast=True), mask=inside)
    tl.store(start + 1, second.to(tl.int64, bitcast=True), mask=inside)
    tl.store(start + 2, third.to(tl.int64, bitcast=True), mask=inside)
    tl.store(start + 3, fourth.to(tl.int64, bitcast=True), mask=inside)


def philox_words(seeds: Tensor, domain: int, steps: Tensor, blocks: Tensor) -> Tensor:
    """The words `[rows, N, 4]` of the counters (blocks + 1, steps, 0, 0) and the keys (seeds, domain): int64 with the
    bits of unsigned numbers. `seeds` and `steps` are int64 `[rows]`, `blocks` `[rows, N]`."""
    row_count, count = blocks.shape
    out = torch.empty(row_count, count, WORDS, dtype=torch.int64, device=blocks.device)
    kernel: Any = _philox
    kernel[row_count, triton.cdiv(count, BLOCKS)](
        seeds.contiguous(), steps.contiguous(), blocks.contiguous(), out, domain, count, BLOCKS=BLOCKS, num_warps=4
    )
    return out
