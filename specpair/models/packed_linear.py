"""Linear layers with weights packed once for products with few rows, as in verification and decoding.

On a CPU such a product is bound by reading the weights. FBGEMM's packed half-precision form reads 16 bits per weight
and multiplies in float32, with kernels for one to six rows. It is used if it loses no precision. Most checkpoints are
bfloat16, whose eight significant bits fit into half precision's eleven after scaling the weights by a power of two into
its range. Weights that do not fit keep their 32 bits in oneDNN's packed form.

Products in bf16 use oneDNN on processors with units for it, and PyTorch's own product on others.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_SHARED = 500_000
"""Below this number of weights a second thread gains less than the fixed cost of FBGEMM's shared product."""
LEAST_REORDERED = 160_000
"""Below this number of weights a plain product was faster than oneDNN's, which has a fixed cost of 20 microseconds."""
HALF_EXPONENT = 15
"""Half precision holds numbers below 2 to this power."""

Product: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """`y = scale * (x W' + b)`, where scale is a power of two that the caller applies.

    The operator before (a norm's weight) or after (a residual sum) can include the scale at no cost.
    """

    product: Product
    """Maps `[rows, in]` to `[rows, out]`, both of the weight's type, without the scale."""
    scale: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)


def pack(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """The best packed form of `weight` `[out, in]`, float32 or bf16; with a bias the scale belongs to the input."""
    if weight.dtype == torch.bfloat16:
        return PackedLinear(reordered(weight, bias) if reorders_bfloat16() else plain(weight, bias), 1.0)
    exponent = HALF_EXPONENT - exponent_of(weight)
    scaled = torch.ldexp(weight, torch.tensor(exponent))
    if offers_fbgemm() and torch.equal(scaled.half().float(), scaled):
        return PackedLinear(half_precision(scaled, bias), 2.0**-exponent)
    if weight.numel() >= LEAST_REORDERED and torch.backends.mkldnn.is_available():
        return PackedLinear(reordered(weight, bias), 1.0)
    return PackedLinear(plain(weight, bias), 1.0)


def plain(weight: Tensor, bias: Tensor | None) -> Product:
    """PyTorch's product of weights as they are."""
    return lambda x: F.linear(x, weight, bias)


def half_precision(weight: Tensor, bias: Tensor | None) -> Product:
    """FBGEMM's product, on one thread or on all.

    Only the operator that takes the packed weights as an object uses several threads; its Python binding costs 15
    microseconds per call. The faster single-threaded function is deprecated: if it is gone, the operator replaces it.
    """
    is_shared = torch.get_num_threads() > 1 and weight.numel() >= LEAST_SHARED
    if is_shared or not hasattr(torch, "fbgemm_linear_fp16_weight_fp32_activation"):
        held = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        operator = torch.ops.quantized.linear_dynamic_fp16.default
        return lambda x: operator(x, held)
    functions: Any = torch
    product = functions.fbgemm_linear_fp16_weight_fp32_activation
    added = torch.zeros(len(weight)) if bias is None else bias
    with warnings.catch_warnings():  # each function warns at its first call
        warnings.simplefilter("ignore", UserWarning)
        packed = functions.fbgemm_pack_gemm_matrix_fp16(weight)
        product(torch.zeros(1, weight.size(1)), packed, added)
    return lambda x: product(x, packed, added)


def reordered(weight: Tensor, bias: Tensor | None) -> Product:
    """oneDNN's product in the type of the weight."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    product = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: product(x, packed, bias, "none", [], "")


def exponent_of(weight: Tensor) -> int:
    """The smallest e such that the absolute value of every weight is below 2 to the e."""
    return int(torch.frexp(weight.abs().max()).exponent)


def reorders_bfloat16() -> bool:
    """Whether oneDNN multiplies in bf16 on this processor; with AVX2 alone it does not."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def offers_fbgemm() -> bool:
    """Whether this build of torch has FBGEMM, as builds for x86 do."""
    return "fbgemm" in torch.backends.quantized.supported_engines
