"""Products with few bits per weight: right, and with the same bits for a row in any company."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from specpair.models import int4_linear, int8_linear
from specpair.models.packed_linear import offers_fbgemm
from specpair.models.weight_format import FORMATS, INT4, INT8, Packing

pytestmark = pytest.mark.skipif(not offers_fbgemm(), reason="FBGEMM is for x86")

SHAPES = [(96, 64), (100, 36), (7, 5), (768, 768), (1536, 576)]
"""Outputs and inputs: also those that no kernel divides by, and some that two threads share."""
HAS_AVX512 = torch.cpu._is_avx512_supported()
HAS_VNNI = torch.cpu._is_vnni_supported()
PACKINGS = {"16 bits": FORMATS["none"].layers, "int8": INT8, "int4": INT4}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sixteen_rows(in_count: int) -> Tensor:
    """Of very different sizes: a scale that rows share would show."""
    return numbers(16, in_count, seed=1) * torch.logspace(-3, 3, 16)[:, None]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def depends_on_company(product: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether any row has other bits alone, or among fewer, than among all."""
    together = product(x)
    parts = [(start, start + count) for count in (1, 2, 4, 5, 8) for start in range(len(x) - count + 1)]
    return any(not torch.equal(product(x[start:end]), together[start:end]) for start, end in parts)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_a_row_has_the_same_bits_alone_and_among_sixteen(packing: Packing, shape: tuple[int, int]) -> None:
    if packing not in (INT8, INT4) and not HAS_AVX512:
        pytest.skip("FBGEMM's product of 16 bits has other bits in company without AVX-512")
    weight = (numbers(*shape) / 8).bfloat16().float()
    product = packing.pack(weight, numbers(shape[0], seed=2))
    x = sixteen_rows(shape[1])
    assert not depends_on_company(product, x)


def test_one_scale_for_all_rows_is_seen() -> None:
    """Negative control: FBGEMM's own dynamic product."""
    weight, steps = int8_linear.rounded(numbers(96, 64))
    quantised = torch.ops.aten._make_per_channel_quantized_tensor(
        weight, steps.double(), torch.zeros(96, dtype=torch.long), 0
    )
    packed = torch.ops.quantized.linear_prepack(quantised, None)
    assert depends_on_company(lambda x: torch.ops.quantized.linear_dynamic(x, packed), sixteen_rows(64))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("packing", [INT8, INT4], ids=["int8", "int4"])
def test_the_product_is_that_with_the_stored_weight(packing: Packing, shape: tuple[int, int]) -> None:
    """As far as inputs and outputs are rounded: inputs to 1/127 of the row's largest, or to bf16 as the outputs are."""
    weight, bias, x = numbers(*shape), numbers(shape[0], seed=2), sixteen_rows(shape[1])
    stored = packing.stored(weight)
    expected = x @ stored.T
    actual = packing.pack(weight, bias)(x) - bias
    size = stored.abs().sum(1)
    if packing is INT8:
        levels = 127 if HAS_VNNI else 63
        bound = x.abs().amax(1, keepdim=True) / levels * 0.51 * size
    else:
        bound = 2.0**-8 * (x.abs() @ stored.abs().T) + 2.0**-8 * expected.abs()
    assert bool(((actual - expected).abs() <= bound + 1e-5 * (1 + expected.abs())).all())


def test_weights_of_8_bits_are_within_half_a_step() -> None:
    weight = numbers(40, 30) * torch.logspace(-6, 6, 40)[:, None]
    steps = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((int8_linear.stored(weight) - weight).abs() <= 0.501 * steps).all())


def test_weights_of_4_bits_are_within_half_a_step() -> None:
    weight = numbers(40, 64) * torch.logspace(-6, 6, 40)[:, None]
    groups = weight.view(40, 2, 32)
    steps = (groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)) / 15
    difference = int4_linear.stored(weight).view(40, 2, 32) - groups
    assert bool((difference.abs() <= 0.56 * steps).all())  # scales in bf16 are up to 1/256 off, at 15 steps


def test_weights_with_sixteen_levels_come_out_as_they_were() -> None:
    """Those of a GGUF file in Q4_1, up to the precision of a scale."""
    levels = torch.randint(0, 16, (32, 2, 32), generator=torch.Generator().manual_seed(0))
    levels[..., 0], levels[..., 1] = 0, 15
    weight = (levels * numbers(32, 2, 1).abs() + numbers(32, 2, 1, seed=1)).view(32, 64)
    assert torch.equal(int4_linear.grouped(weight).levels.view(levels.shape), levels.int())
    assert bool(((int4_linear.stored(weight) - weight).abs() <= 0.01 * weight.abs().max()).all())


def test_rows_of_zeros_give_the_bias_and_nan_stays_in_its_row() -> None:
    x = numbers(3, 64)
    x[0], x[1, 5] = 0.0, float("nan")
    for packing in (INT8, INT4):
        bias = numbers(48, seed=2)
        y = packing.pack(numbers(48, 64), bias)(x)
        assert torch.equal(y[0], bias) and bool(y[1].isnan().any()) and bool(y[2].isfinite().all())


def test_constant_weights_are_kept() -> None:
    """Groups and outputs without a range: zeros, and all the same."""
    for value in (0.0, 0.25):
        weight = torch.full((16, 64), value)
        assert torch.equal(int4_linear.stored(weight), weight)
        assert torch.allclose(int8_linear.stored(weight), weight)


def test_smaller_inputs_where_pairs_of_products_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial sees a product that is too small; then no sum of two products exceeds 16 bits."""
    real = int8_linear.pack_with

    def overflowing(weight: Tensor, bias: Tensor | None, input_steps: int) -> Callable[[Tensor], Tensor]:
        product = real(weight, bias, input_steps)
        return lambda x: product(x) * (0.5 if input_steps == int8_linear.INPUT_STEPS else 1.0)

    assert 2 * (2 * int8_linear.REDUCED_INPUT_STEPS + 1) * int8_linear.WEIGHT_STEPS < 2**15
    monkeypatch.setattr(int8_linear, "pack_with", overflowing)
    assert int8_linear.saturates.__wrapped__()
    monkeypatch.setattr(int8_linear, "saturates", lambda: True)
    weight, x = numbers(48, 64), numbers(5, 64, seed=1)
    expected = x @ int8_linear.stored(weight).T
    bound = x.abs().amax(1, keepdim=True) / 63 * 0.51 * weight.abs().sum(1)
    assert bool(((int8_linear.pack(weight)(x) - expected).abs() <= bound).all())
