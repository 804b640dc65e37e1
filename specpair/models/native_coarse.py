"""Weights of 8 and 4 bits in the layout of `native/bytes.h`."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.models import int4_linear, int8_linear

PANEL = 32
BYTE_GROUP = 64
NIBBLE_GROUP = int4_linear.GROUP


class CoarseWeights(NamedTuple):
    """A packed weight."""

    weights: Tensor
    """uint8."""
    scales: Tensor | None
    """`[panels * 32]` float32, for 8 bits: the size of a step for each output."""


def packed_bytes(weight: Tensor) -> CoarseWeights:
    """`[panels][groups][group / 4][32][4]`, around 128."""
    numbers, steps = int8_linear.rounded(weight)
    outs, ins = weight.shape
    filled = F.pad(numbers, (0, -ins % BYTE_GROUP, 0, -outs % PANEL))
    unsigned = (filled.int() + 128).to(torch.uint8)
    panels = unsigned.view(-1, PANEL, filled.size(1) // 4, 4).transpose(1, 2).contiguous()
    return CoarseWeights(panels, F.pad(steps, (0, -outs % PANEL)))


def packed_nibbles(weight: Tensor) -> CoarseWeights:
    """For each panel and group: `[group / 8][32][4]` bytes, then 32 scales and 32 middles in bf16.

    A byte has the levels of input i in its lower half and of input i + 4 in its upper half.
    """
    levels, scales, middles = int4_linear.grouped(F.pad(weight, (0, 0, 0, -len(weight) % PANEL)))
    groups = scales.size(1)
    steps = levels.view(-1, PANEL, groups, NIBBLE_GROUP // 8, 2, 4)
    nibbles = (steps[..., 0, :] + 16 * steps[..., 1, :]).to(torch.uint8).permute(0, 2, 3, 1, 4)
    parts = [nibbles.reshape(len(steps), groups, -1)]
    for numbers in (scales, middles):
        by_panel = numbers.view(-1, PANEL, groups).transpose(1, 2).contiguous()
        parts.append(by_panel.view(torch.uint8))
    return CoarseWeights(torch.cat(parts, -1).contiguous(), None)


def rounded_groups(x: Tensor, group: int) -> Tensor:
    """`x` as a product sees it: each group of a row's inputs in whole steps of its own largest value."""
    filled = F.pad(x, (0, -x.size(-1) % group))
    groups = int8_linear.rounded_rows(filled.unflatten(-1, (-1, group)), int8_linear.INPUT_STEPS)
    return groups.flatten(-2)[..., : x.size(-1)]
