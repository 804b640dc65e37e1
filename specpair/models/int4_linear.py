"""Products with weights of 4 bits: sixteen levels for each group of 32 inputs of an output, multiplied in bf16.

The levels lie evenly between the least and the largest weight of the group, as in GGUF's Q4_1, whose weights come out
as they were. Rows are multiplied at most four at a time and each in the same order, so a row has the same bits in any
company.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.models.packed_linear import PackedLinear

GROUP = 32
LEVELS = 16
MIDDLE = LEVELS // 2
ROWS = 4
"""The operator's kernels have one to this many rows. More at once took four times as long as these."""
OUTPUTS = 16
"""The operator takes multiples of this many outputs, and of `GROUP` inputs; zeros fill up the rest."""


class Grouped(NamedTuple):
    """A weight in levels, filled up to `[outputs, inputs]` that the operator takes."""

    levels: Tensor
    """`[outputs, inputs]` int32, 0 to 15."""
    scales: Tensor
    """`[outputs, groups]` bf16: the distance of two levels."""
    middles: Tensor
    """`[outputs, groups]` bf16: the weight at level 8."""


def grouped(weight: Tensor) -> Grouped:
    out_count, in_count = weight.shape
    filled = F.pad(weight.float(), (0, -in_count % GROUP, 0, -out_count % OUTPUTS))
    groups = filled.view(len(filled), -1, GROUP)
    least, largest = groups.aminmax(dim=-1)
    scales = ((largest - least) / (LEVELS - 1)).bfloat16()
    middles = (least + MIDDLE * scales.float()).bfloat16()
    steps = torch.where(scales == 0, 1.0, scales.float())
    levels = ((groups - middles.float()[..., None]) / steps[..., None]).add_(MIDDLE).round_().clamp_(0, LEVELS - 1)
    return Grouped(levels.view(filled.shape).int(), scales, middles)


def stored(weight: Tensor) -> Tensor:
    """The weight that is multiplied by in the place of `weight`, float32."""
    levels, scales, middles = grouped(weight)
    groups = (levels - MIDDLE).view(*scales.shape, GROUP)
    values = groups * scales.float()[..., None] + middles.float()[..., None]
    return values.view(levels.shape)[: weight.size(0), : weight.size(1)]


def pack(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """Products with `weight` `[out, in]`: inputs of any floating type, outputs float32 with the precision of bf16."""
    levels, scales, middles = grouped(weight)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1)
    scales_and_middles = torch.stack([scales, middles], -1).transpose(0, 1).contiguous()
    operator = torch.ops.aten._weight_int4pack_mm_for_cpu.default
    (out_count, in_count), (filled_outputs, filled_inputs) = weight.shape, levels.shape
    added = None if bias is None else bias.float()

    def product(x: Tensor) -> Tensor:
        x = x.bfloat16()
        if filled_inputs != in_count:
            x = F.pad(x, (0, filled_inputs - in_count))
        tiles = [operator(tile, packed, GROUP, scales_and_middles) for tile in x.split(ROWS)]
        y = (tiles[0] if len(tiles) == 1 else torch.cat(tiles)).float()
        if filled_outputs != out_count:
            y = y[:, :out_count].contiguous()
        return y if added is None else y.add_(added)

    return PackedLinear(product, 1.0)
