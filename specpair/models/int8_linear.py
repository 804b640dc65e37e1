"""Products with weights of 8 bits: one scale per output, and rows of inputs that are rounded to 8 bits as well.

Every row is divided by its own largest absolute value before FBGEMM rounds it, so one fixed scale fits all rows.
FBGEMM's dynamic product takes its scale from the whole tensor instead: there a row would depend on the others of its
pass. Sums of integers are the same in any order, so a row has the same bits in any company.
"""

import warnings
from functools import cache

import torch
from torch import Tensor

from specpair.models.packed_linear import PackedLinear

WEIGHT_STEPS = 127
INPUT_STEPS = 127
"""Steps between 0 and a row's largest absolute value; inputs are unsigned bytes with 0 in the middle."""
REDUCED_INPUT_STEPS = 63
"""Without VNNI, two products of bytes are added in 16 bits, which hold 2 * 127 * 127 but not 2 * 255 * 127."""
LEAST_LARGEST = 1e-30
"""Divides what has only zeros."""


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weight `[out, in]` in whole steps, as int8, and the size of a step for each output, float32."""
    weight = weight.float()
    steps = weight.abs().amax(1).clamp_min(LEAST_LARGEST) / WEIGHT_STEPS
    return (weight / steps[:, None]).round_().to(torch.int8), steps


def stored(weight: Tensor) -> Tensor:
    """The weight that is multiplied by in the place of `weight`, float32."""
    numbers, steps = rounded(weight)
    return numbers * steps[:, None]


def pack(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """Products with `weight` `[out, in]`: inputs of any floating type, outputs float32."""
    return pack_with(weight, bias, input_steps())


def input_steps() -> int:
    """Steps between 0 and a row's largest absolute value on this processor."""
    return REDUCED_INPUT_STEPS if saturates() else INPUT_STEPS


def pack_with(weight: Tensor, bias: Tensor | None, input_steps: int) -> PackedLinear:
    """As `pack`, with this many steps between 0 and the largest input."""
    numbers, steps = rounded(weight)
    zeros = torch.zeros(len(steps), dtype=torch.long)
    with warnings.catch_warnings():  # quantised tensors are deprecated; this one only carries the weight to FBGEMM
        warnings.simplefilter("ignore", UserWarning)
        quantised = torch.ops.aten._make_per_channel_quantized_tensor(numbers, steps.double(), zeros, 0)
    packed = torch.ops.quantized.linear_prepack(quantised, None)
    operator = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
    scale, middle = 1.0 / input_steps, input_steps + 1
    added = None if bias is None else bias.float()

    def product(x: Tensor) -> Tensor:
        x = x.float()
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(LEAST_LARGEST)
        y = operator(x / largest, scale, middle, packed).mul_(largest)
        return y if added is None else y.add_(added)

    return PackedLinear(product, 1.0)


def rounded_rows(x: Tensor, input_steps: int) -> Tensor:
    """`x` as a product sees it: each row, along the last dimension, in whole steps of its own largest value."""
    steps = x.float().abs().amax(-1, keepdim=True).clamp_min_(LEAST_LARGEST) / input_steps
    return ((x / steps).round_() * steps).to(x.dtype)


@cache
def saturates() -> bool:
    """Whether this processor's product of bytes overflows: known from products of the largest inputs and weights."""
    count = 64
    product = pack_with(torch.ones(count, count), None, INPUT_STEPS)
    return any(bool((product(torch.ones(rows, count)) < count * 0.99).any()) for rows in (1, 5))
