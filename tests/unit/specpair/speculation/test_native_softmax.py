"""The compiled softmax: close to the exact one, and the bits of a row depend on its finite logits alone."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpair.native.library import native_library
from specpair.options import SamplingOptions
from specpair.speculation import native_softmax
from specpair.speculation.native_softmax import soften
from specpair.speculation.sampling import SamplingRows, probabilities

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
WIDTHS = [1, 2, 15, 16, 17, 63, 64, 65, 300, 1000, 4096, 5001]


@pytest.fixture(autouse=True, scope="module")
def loaded() -> Iterator[None]:
    native_library()
    yield


def softened(logits: Tensor, *temperatures: float) -> Tensor:
    made = soften(logits, torch.tensor(temperatures) if temperatures else None)
    assert made is not None
    return made


def random_logits(width: int, seed: int, spread: float = 4.0) -> Tensor:
    return torch.randn(1, width, generator=torch.Generator().manual_seed(seed)) * spread


def test_each_exp_is_off_by_two_units_at_most() -> None:
    """Beside a sum of nearly 1 they show as they are; these logits and their distances to the largest are exact."""
    logits = torch.cat((torch.tensor([0.0]), torch.arange(-87 * 1024, -19 * 1024) / 1024))[None]
    made, exact = softened(logits).double(), logits.double().exp()
    scaled = made / made[0, 0]
    assert made[0, 0] > 0.99999
    assert ((scaled - exact) / exact).abs().max() < 2.5 * 2.0**-23  # two units and the rounding of the product


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.8, 2.5])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_those_of_doubles(width: int, temperature: float) -> None:
    for seed, spread in enumerate((0.01, 1.0, 6.0)):
        logits = random_logits(width, seed, spread)
        exact = (logits.double() / torch.tensor(temperature).double()).softmax(-1)
        made = softened(logits, temperature)
        torch.testing.assert_close(made.double(), exact, rtol=1e-5, atol=1e-37)
        assert abs(made.double().sum() - 1) < 2.0**-22


@given(
    width=st.sampled_from(WIDTHS),
    gaps=st.integers(1, 3000),
    temperature=st.sampled_from([1.0, 0.3, 1.7]),
    spread=st.sampled_from([1.0, 30.0]),
    seed=st.integers(0, 2**31),
)
def test_the_bits_of_a_probability_do_not_depend_on_places(width, gaps, temperature, spread, seed) -> None:
    """Nor on tokens without a logit in between: so the rows of a head with fewer tokens are those of the whole."""
    own = random_logits(width, seed, spread)
    places = torch.randperm(width + gaps, generator=torch.Generator().manual_seed(seed))[:width]
    apart = torch.full((1, width + gaps), -math.inf)
    apart[0, places] = own[0]
    made = softened(apart, temperature)
    assert torch.equal(made[:, places], softened(own, temperature))
    assert made.count_nonzero() == softened(own, temperature).count_nonzero()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
def test_a_number_that_is_none_spoils_its_own_row_wherever_it_is(bad: float, width: int) -> None:
    for place in {0, width // 2, width - 1}:
        for rest in (random_logits(width, 1), torch.full((1, width), -math.inf)):
            rows = torch.cat((random_logits(width, 2), rest, random_logits(width, 3)))
            expected = softened(rows)[[0, 2]]
            rows[1, place] = bad
            for temperatures in ((), (1.0, 0.4, 1.0)):
                made = softened(rows, *temperatures)
                assert made[1].isnan().all() and torch.equal(made[[0, 2]], expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_without_any_logit_is_no_distribution(width: int) -> None:
    assert softened(torch.full((1, width), -math.inf)).isnan().all()


@pytest.mark.parametrize("width", WIDTHS)
def test_greedy_rows_are_one_hot_at_the_first_of_the_largest(width: int) -> None:
    for seed in range(20):
        logits = random_logits(width, seed).round()
        made = softened(logits, 0.0)[0]
        assert made[logits[0].argmax()] == 1.0 and made.sum() == 1.0


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-6])
def test_no_temperature_overflows(temperature: float) -> None:
    logits = torch.tensor([[-3e38, 3e38, 2.9e38, -math.inf] * 30])
    made = softened(logits, temperature)
    assert torch.equal(made[0], torch.tensor([0.0, 1 / 30, 0.0, 0.0] * 30))


def test_the_least_temperature_is_the_least_normal_number() -> None:
    logits = torch.tensor([[0.0, -1e-39]])
    assert torch.equal(softened(logits, 1e-45), softened(logits, torch.finfo(torch.float32).tiny))
    assert softened(logits, 1e-45)[0, 1] > 0.4


def test_rows_that_follow_each_other_only_in_another_order() -> None:
    logits = random_logits(600, 0).view(3, 200)
    assert torch.equal(softened(logits.T.contiguous().T), softened(logits))


def test_what_it_does_not_know_is_left_to_torch() -> None:
    assert soften(torch.zeros(1, 3, dtype=torch.float64)) is None
    assert soften(torch.zeros(1, 3, device="meta")) is None


def test_a_temperature_alone_is_applied_as_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a row has its bits also beside one with top-p."""
    logits = random_logits(3000, 0).view(2, 1500)
    beside = [SamplingOptions(temperature=0.7), SamplingOptions(top_p=0.5)]
    together = probabilities(logits, SamplingRows.of(beside))[0]
    assert torch.equal(together, softened(logits[:1], 0.7)[0])
    monkeypatch.setattr(native_softmax, "quick_functions", lambda count: None)
    assert not torch.equal(probabilities(logits, SamplingRows.of(beside))[0], together), "those of torch"
