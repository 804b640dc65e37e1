"""The statistics of `verify-exactness`: against scipy where it has them, by simulation where it has not."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from specpair.exactness.g_test import g_test, log_likelihood_ratio, williams_correction
from specpair.exactness.holm import holm
from specpair.exactness.pooling import MAX_BINS, MIN_EXPECTED, Bin, pool
from specpair.exactness.power import detectable_distance, needed_noncentrality

Counts = dict[tuple[int, ...], int]
outcomes = st.tuples(st.integers(0, 5), st.integers(0, 5))
counts = st.dictionaries(outcomes, st.integers(1, 40), min_size=1)


def named(counts: np.ndarray) -> Counts:
    return dict(zip(itertools.product(range(6), range(5)), counts.tolist(), strict=True))


def two_samples(generator: np.random.Generator, one: np.ndarray, other: np.ndarray, size: int) -> list[Bin]:
    return [Bin(*map(int, pair)) for pair in np.transpose([generator.multinomial(size, row) for row in (one, other)])]


@pytest.mark.parametrize("bins", [[Bin(10, 20), Bin(30, 25), Bin(7, 0)], [Bin(500, 80), Bin(400, 90)]])
def test_g_is_scipys(bins: list[Bin]) -> None:
    table = np.array(bins).T
    expected: Any = chi2_contingency(table, correction=False, lambda_="log-likelihood")
    assert log_likelihood_ratio(bins) == pytest.approx(expected.statistic)
    result = g_test(bins)
    assert result.df == expected.dof
    assert result.g == pytest.approx(expected.statistic / williams_correction(bins))
    assert result.p_value == pytest.approx(chi2.sf(result.g, result.df))


def test_samples_in_proportion_differ_in_nothing() -> None:
    assert g_test([Bin(10, 20), Bin(30, 60), Bin(50, 100)]) == (pytest.approx(0, abs=1e-9), 2, pytest.approx(1))


@pytest.mark.parametrize("bins", [[], [Bin(100, 90)]])
def test_one_bin_proves_nothing(bins: list[Bin]) -> None:
    assert g_test(bins) == (0.0, 0, 1.0)


def test_williams_correction_takes_out_what_small_bins_add() -> None:
    generator, even = np.random.default_rng(1), np.full(20, 0.05)
    tables = [two_samples(generator, even, even, 100) for _ in range(3000)]
    ratios = [log_likelihood_ratio(bins) / 19 for bins in tables]
    corrections = [williams_correction(bins) for bins in tables if all(sum(bin_) for bin_ in bins)]
    assert np.mean(ratios) > 1.05
    assert np.mean(ratios) / np.mean(corrections) == pytest.approx(1, abs=0.02)


def test_false_alarms_are_as_many_as_the_level_says() -> None:
    """From counts to p-value, pooling included: 30 outcomes of very different probability, half of them rare."""
    generator = np.random.default_rng(2)
    shares = generator.dirichlet(np.full(30, 0.3))
    alarms = 0
    for _ in range(4000):
        samples = [named(generator.multinomial(400, shares)) for _ in "ab"]
        alarms += g_test(pool(*samples)).p_value < 0.05
    assert alarms / 4000 == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("sizes", [(1000, 1000), (500, 2000)])
def test_the_detectable_distance_is_seen_as_often_as_promised(sizes: tuple[int, int]) -> None:
    """Spread evenly over the bins a difference is the hardest to see: the bound is met, and not by much."""
    generator, level, bin_count = np.random.default_rng(3), 1e-3, 10
    distance = detectable_distance(*sizes, bin_count - 1, level)
    assert distance is not None
    signs = np.resize([1, -1], bin_count)
    first, second = (1 + share * signs for share in 2 * distance * np.array([sizes[1], -sizes[0]]) / sum(sizes))
    first, second = first / bin_count, second / bin_count
    assert np.abs(first - second).sum() / 2 == pytest.approx(distance)
    seen = 0
    for _ in range(2000):
        drawn = [generator.multinomial(size, row) for size, row in zip(sizes, (first, second), strict=True)]
        seen += g_test([Bin(*map(int, pair)) for pair in np.transpose(drawn)]).p_value < level
    assert 0.88 < seen / 2000 < 0.95


def test_four_times_the_draws_see_half_the_distance() -> None:
    few, many = (detectable_distance(size, size, 7, 1e-4) for size in (500, 2000))
    assert few == pytest.approx(2 * (many or math.nan))


@pytest.mark.parametrize(("size", "df"), [(1000, 0), (4, 30)])
def test_a_test_that_cannot_see_says_so(size: int, df: int) -> None:
    assert detectable_distance(size, size, df, 1e-3) is None


def test_the_noncentrality_of_tables() -> None:
    """Cohen, "Statistical Power Analysis" (1988): 90 % power at 0.05 with 1 degree of freedom needs 10.51."""
    assert needed_noncentrality(1, 0.05, 0.9) == pytest.approx(10.51, abs=0.01)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(counts, counts)
def test_pooling_keeps_every_outcome_and_fills_every_bin(first: Counts, second: Counts) -> None:
    bins = pool(first, second)
    sizes = sum(first.values()), sum(second.values())
    assert tuple(map(sum, zip(*bins, strict=True))) == sizes
    assert len(bins) <= MAX_BINS
    if len(bins) > 1:
        assert min(sum(bin_) for bin_ in bins) * min(sizes) / sum(sizes) >= MIN_EXPECTED


@given(counts, counts)
def test_which_sample_an_outcome_came_from_does_not_cut_the_bins(first: Counts, second: Counts) -> None:
    """Bins depend on totals alone, if the samples are of one size."""
    total = Counter(first) + Counter(second)
    doubled = {outcome: 2 * count for outcome, count in total.items()}
    halves = [sum(bin_) for bin_ in pool(total, total)]
    size = sum(total.values())
    moved, left = dict(doubled), {}
    for outcome, count in doubled.items():
        taken = min(count, size - sum(left.values()))
        left[outcome], moved[outcome] = taken, count - taken
    assert [sum(bin_) for bin_ in pool(left, moved)] == halves


def test_rare_outcomes_are_pooled_with_those_that_end_alike() -> None:
    first = {(a, b): 3 + b for a, b in itertools.product(range(4), range(3))}
    assert pool(first, first) == [Bin(6, 6)] * 2 + [Bin(8, 8)] * 2 + [Bin(5, 5)] * 4
