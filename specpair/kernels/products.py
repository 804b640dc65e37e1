"""Products of a few rows with the weights of a model, each by what is fastest for it."""

import torch.nn.functional as F
from torch import Tensor

from specpair.kernels import linear_kernel, tensor_core_kernel
from specpair.kernels.sum_kernels import open_gates


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """The parts of `x` `[rows, depth]` times the transpose of `weight` `[width, depth]`: `[parts, rows, width]`, whose
    sum over the parts is the product. They are float32 where a kernel made them."""
    if tensor_core_kernel.can_multiply(x, weight):
        return tensor_core_kernel.multiply(x, weight)
    if len(x) <= linear_kernel.MOST_ROWS:
        return linear_kernel.multiply(x, weight)
    return F.linear(x, weight)[None]


def multiply_and_gate(x: Tensor, weight: Tensor) -> Tensor:
    """SiLU of the product of `x` `[rows, depth]` with the first half of the rows of `weight` `[2 width, depth]`, times
    the product with the second half: `[rows, width]`."""
    if tensor_core_kernel.can_multiply(x, weight):
        return tensor_core_kernel.multiply_and_gate(x, weight)
    return open_gates(multiply(x, weight), x.dtype)
