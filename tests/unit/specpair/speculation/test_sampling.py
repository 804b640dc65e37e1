import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from specpair.options import SamplingOptions
from specpair.speculation.sampling import SamplingRows, came_of_finite, finite_rows, likeliest, probabilities

pytestmark = pytest.mark.usefixtures("arithmetic")

# Few values, so that ties are common; some tokens are masked.
rows_of_logits = st.lists(st.sampled_from([-math.inf, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=9).filter(
    lambda row: max(row) > -math.inf
)
options = st.builds(
    SamplingOptions,
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 0.7, 1.0, 2.5, 100.0]),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.0078125, 1.0, width=32),
)


def reference(logits: list[float], chosen: SamplingOptions) -> tuple[list[float], float]:
    """The distribution by plain loops, and how close top-p came to cutting elsewhere."""
    best = max(logits)
    if chosen.temperature == 0:
        return [float(i == logits.index(best)) for i in range(len(logits))], 1.0
    weights = [math.exp((value - best) / chosen.temperature) for value in logits]
    if 0 < chosen.top_k < len(logits):
        last = sorted(weights, reverse=True)[chosen.top_k - 1]
        weights = [weight if weight >= last else 0.0 for weight in weights]
    result = [weight / sum(weights) for weight in weights]
    if chosen.top_p == 1.0:
        return result, 1.0
    kept, mass, margin = set(), 0.0, 1.0
    for token in sorted(range(len(result)), key=lambda token: (-result[token], token)):
        margin = min(margin, abs(mass - chosen.top_p))
        if mass < chosen.top_p:
            kept.add(token)
        mass += result[token]
    result = [probability if token in kept else 0.0 for token, probability in enumerate(result)]
    return [probability / sum(result) for probability in result], min(margin, abs(mass - chosen.top_p))


def sample_rows(logits: torch.Tensor, *chosen: SamplingOptions) -> torch.Tensor:
    return probabilities(logits, SamplingRows.of(chosen))


@given(rows_of_logits, st.lists(options, min_size=1, max_size=4))
def test_rows_match_plain_loops_in_any_company(logits, chosen):
    expected, margins = zip(*[reference(logits, row) for row in chosen], strict=True)
    assume(min(margins) > 1e-6)
    got = sample_rows(torch.tensor([logits] * len(chosen), dtype=torch.float64), *chosen)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-6)  # temperature 0.3 is a float32 in the rows
    np.testing.assert_array_equal(got.numpy() > 0, np.array(expected) > 0)


@given(st.integers(0, 2**31), st.lists(options, min_size=1, max_size=5))
def test_a_row_does_not_depend_on_its_neighbours(seed, chosen):
    logits = torch.randn(len(chosen), 300, generator=torch.Generator().manual_seed(seed)) * 3
    together = sample_rows(logits, *chosen)
    alone = torch.cat([sample_rows(logits[i : i + 1], row) for i, row in enumerate(chosen)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-9)


def test_top_k_keeps_ties_with_the_last():
    got = sample_rows(torch.tensor([[1.0, 2.0, 1.0, 0.0]]), SamplingOptions(top_k=2))
    assert (got > 0).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize(("top_p", "kept"), [(0.2, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_top_p_keeps_the_smallest_set_and_of_equal_tokens_the_first(top_p, kept):
    got = sample_rows(torch.zeros(1, 4), SamplingOptions(top_p=top_p))
    expected = [1 / kept] * kept + [0.0] * (4 - kept)
    torch.testing.assert_close(got, torch.tensor([expected]))


@pytest.mark.parametrize(("min_p", "kept"), [(0.0, 4), (0.1, 3), (0.4, 2), (0.6, 1), (1.0, 1)])
def test_min_p_drops_what_is_too_unlikely_beside_the_likeliest(min_p, kept):
    logits = torch.tensor([[8.0, 1.0, 4.0, 0.5]]).log()
    expected = torch.tensor([[8.0, 1.0, 4.0, 0.5]]) * torch.tensor([[True, kept > 2, kept > 1, kept > 3]])
    for others in ((), (SamplingOptions(),)):
        got = sample_rows(logits.expand(1 + len(others), -1), SamplingOptions(min_p=min_p), *others)
        torch.testing.assert_close(got[:1], expected / expected.sum())


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_top_p_over_a_large_vocabulary(spread):
    """Flat rows need more tokens than the first look finds; then the whole row is sorted."""
    logits = torch.randn(3, 8192, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * spread
    full, got = logits.softmax(-1), sample_rows(logits, *[SamplingOptions(top_p=0.875)] * 3)
    for row, cut in zip(full, got, strict=True):
        kept = cut > 0
        assert row[kept].sum() >= 0.875 > row[kept].sum() - row[kept].min()
        assert row[kept].min() >= row[~kept].max()
        torch.testing.assert_close(cut[kept], row[kept] / row[kept].sum())


def top_p_by_sorting(row: torch.Tensor, top_p: float) -> torch.Tensor:
    """What top-p leaves of probabilities [V], by a stable sort of the whole row."""
    values, order = row.sort(descending=True, stable=True)
    mass = values.double().cumsum(-1)
    before = torch.cat((torch.zeros(1, dtype=torch.float64), mass[:-1]))
    count = max(1, int((before < np.float32(top_p)).sum()))
    kept = torch.zeros_like(row)
    kept[order[:count]] = row[order[:count]]
    return kept / mass[count - 1].to(row.dtype)


@given(
    seed=st.integers(0, 2**31),
    width=st.sampled_from([5, 128, 129, 2000]),
    spread=st.sampled_from([0.0, 0.1, 1.0, 4.0]),
    levels=st.sampled_from([1, 4, 1000]),
    top_ps=st.lists(st.floats(0.0078125, 0.99993896484375, width=32), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_top_p_gives_the_bits_of_a_full_sort(seed, width, spread, levels, top_ps, dtype):
    """However many tokens are looked at first, and in any company; few levels mean many equal tokens."""
    noise = torch.randn(len(top_ps), width, generator=torch.Generator().manual_seed(seed))
    logits = ((noise * levels).round() / levels * spread).to(dtype)
    whole = sample_rows(logits, *[SamplingOptions()] * len(top_ps))
    expected = [top_p_by_sorting(row, top_p) for row, top_p in zip(whole, top_ps, strict=True)]
    got = sample_rows(logits, *[SamplingOptions(top_p=top_p) for top_p in top_ps])
    assert torch.equal(got, torch.stack(expected))


def test_top_k_over_a_large_vocabulary():
    logits = torch.randn(2, 8192, generator=torch.Generator().manual_seed(2))
    got = sample_rows(logits, SamplingOptions(top_k=20), SamplingOptions(top_k=3))
    for row, cut, k in zip(logits, got, (20, 3), strict=True):
        assert set(cut.nonzero().flatten().tolist()) == set(row.topk(k).indices.tolist())


def test_greedy_is_one_hot_at_the_first_of_the_largest():
    logits = torch.tensor([[0.0, 5.0, 5.0], [7.0, 1.0, 7.0]])
    greedy = SamplingOptions(temperature=0.0, top_k=2, top_p=0.3)
    expected = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert torch.equal(sample_rows(logits, greedy, greedy), expected)
    mixed = sample_rows(logits, greedy, SamplingOptions(temperature=2.0))
    assert torch.equal(mixed[0], expected[0]) and (mixed[1] > 0).all()


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6])
def test_no_temperature_overflows(temperature):
    got = sample_rows(torch.tensor([[1e4, -1e4, 9999.0]]), SamplingOptions(temperature=temperature))
    assert got.tolist() == [[1.0, 0.0, 0.0]]


def test_masked_tokens_get_nothing():
    logits = torch.tensor([[1.0, -torch.inf, 0.0, -torch.inf]])
    for chosen in (SamplingOptions(), SamplingOptions(temperature=0.7, top_k=3, top_p=0.999)):
        assert (sample_rows(logits, chosen) > 0).tolist() == [[True, False, True, False]]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_probabilities_are_float32_or_wider_and_leave_the_logits_alone(dtype, expected):
    logits = torch.randn(2, 50).to(dtype)
    before = logits.clone()
    got = sample_rows(logits, SamplingOptions(temperature=0.5, top_k=7, top_p=0.9), SamplingOptions())
    assert got.dtype == expected and torch.equal(logits, before)
    torch.testing.assert_close(got.sum(-1), torch.ones(2, dtype=expected))


unusual_rows = pytest.mark.parametrize(
    ("row", "finite"),
    [
        ([0.0, 1.0], True),
        ([-math.inf, 1.0], True),
        ([-math.inf, -math.inf], False),
        ([math.inf, 0.0], False),
        ([math.nan, 0.0], False),
        ([0.0, -math.nan], False),
        ([-math.inf, math.nan], False),
    ],
)


@unusual_rows
def test_finite_rows(row, finite):
    logits = torch.tensor([row, [0.0, 0.0]])
    assert finite_rows(logits).tolist() == [finite, True]
    assert likeliest(logits)[1] == [finite, True]


@pytest.mark.slow
@unusual_rows
@given(own=options.filter(lambda own: not own.is_greedy), other=options)
def test_distributions_tell_whether_they_came_of_something_finite(row, finite, own, other):
    """In any company, whose options decide what is looked at. A row that did not is NaN throughout."""
    logits = torch.tensor([row, [0.0, 0.0]])
    got = sample_rows(logits, own, other)
    assert came_of_finite(got)[0] == came_of_finite(got.numpy())[0] == finite
    assert got[0].isnan().all() == (not finite)


def test_the_likeliest_token_is_the_first_of_the_largest():
    logits = torch.tensor([[0.0, 5.0, 5.0], [7.0, 1.0, 7.0], [-math.inf, -3.0, -4.0]])
    assert likeliest(logits)[0] == logits.argmax(-1).tolist() == [1, 0, 1]


def test_options_of_sequences_hold_for_all_of_their_rows():
    logits = torch.randn(5, 60, generator=torch.Generator().manual_seed(4)) * 3
    first, second = SamplingOptions(temperature=0.5, top_k=9, min_p=0.01), SamplingOptions(top_p=0.7)
    expected = sample_rows(logits, first, first, first, second, second)
    assert torch.equal(probabilities(logits, SamplingRows([first, second], [3, 2])), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("chosen", [SamplingOptions(), SamplingOptions(temperature=0.5, top_k=2, top_p=0.5)])
def test_a_row_that_is_not_finite_leaves_the_others_alone(bad, chosen):
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(3))
    spoilt = logits.clone()
    spoilt[0, 2] = bad
    assert torch.equal(sample_rows(spoilt, chosen, chosen)[1], sample_rows(logits, chosen, chosen)[1])
