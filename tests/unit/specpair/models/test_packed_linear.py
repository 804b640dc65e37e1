"""Packed products are those of PyTorch, in every type and on every processor."""

import pytest
import torch
import torch.nn.functional as F

from specpair.models import packed_linear
from specpair.models.packed_linear import LEAST_REORDERED, pack


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("outputs", [48, LEAST_REORDERED // 64])
def test_product_is_that_of_torch(outputs: int, dtype: torch.dtype, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(outputs, 64, generator=generator).to(dtype)
    bias = torch.randn(outputs, generator=generator).to(dtype) if has_bias else None
    x = torch.randn(3, 64, generator=generator).to(dtype)
    packed = pack(weight, bias)
    product = packed(x * packed.scale if has_bias else x) * (1.0 if has_bias else packed.scale)
    torch.testing.assert_close(product, F.linear(x, weight, bias), rtol=2e-2, atol=0.1)


def test_a_processor_without_units_for_bf16_has_a_product_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN refuses to pack such weights with AVX2 alone."""
    monkeypatch.setattr(packed_linear, "reorders_bfloat16", lambda: False)
    weight, x = torch.randn(48, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    assert torch.equal(pack(weight)(x), F.linear(x, weight))
