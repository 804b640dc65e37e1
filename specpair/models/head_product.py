"""Products of heads: float32 rows in and out, whatever the type of the weight."""

from collections.abc import Callable
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

from specpair.models.packed_linear import pack

HeadProduct: TypeAlias = Callable[[Tensor], Tensor]


def head_product(weight: Tensor) -> HeadProduct:
    """Maps `[rows, in]` to `[rows, out]` by `weight` `[out, in]`, in its type: on a CPU in its packed form."""
    dtype = weight.dtype
    if weight.device.type != "cpu":
        return lambda x: F.linear(x.to(dtype), weight).float()
    packed = pack(weight.contiguous())
    if packed.scale == 1.0:
        return lambda x: packed(x.to(dtype)).float()
    return lambda x: packed(x.to(dtype)).float() * packed.scale
