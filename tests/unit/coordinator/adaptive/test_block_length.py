"""The best number of proposed tokens, by arithmetic alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.block_length import best_block, block_rate, plain_rate
from coordinator.adaptive.round_costs import RoundTimes
from specpair.theory.speedup import optimum, walltime_factor

CHANCES = st.floats(0.0, 1.0)
SHARES = st.floats(0.0, 2.0)


def times(base: float = 1.0, per_token: float = 0.1, others_base: float = 0.0, others: float = 0.0) -> RoundTimes:
    return RoundTimes(
        plain=1.0,
        base=base,
        per_token=per_token,
        others_base=others_base,
        others_per_token=others,
        step=per_token,
    )


@given(st.tuples(CHANCES, CHANCES, CHANCES), st.floats(1.0, 3.0), SHARES, SHARES, SHARES, SHARES)
def test_it_is_the_best_of_all(
    rates: tuple[float, float, float], base: float, per_token: float, others_base: float, others: float, rate: float
) -> None:
    costs = times(base, per_token, others_base, others)
    best = best_block(rates, costs, rate, 16)
    every = [block_rate(length, rates, costs, rate) for length in range(1, 17)]
    assert best.rate == pytest.approx(max(every))
    assert block_rate(best.length, rates, costs, rate) == pytest.approx(best.rate)


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("cost_ratio", "overhead"), [(0.01, 0.0), (0.05, 0.1), (0.3, 0.0), (0.5, 0.4)])
def test_alone_it_is_the_optimum_of_leviathan_et_al(acceptance: float, cost_ratio: float, overhead: float) -> None:
    costs = times(1.0 + overhead, cost_ratio)
    best = best_block((acceptance, acceptance, acceptance), costs, 0.0, 16)
    assert best.rate == pytest.approx(walltime_factor(acceptance, best.length, cost_ratio, overhead))
    theirs = optimum(acceptance, cost_ratio, overhead, limit=16)
    is_off = best.rate <= plain_rate(costs)
    assert (0 if is_off else best.length) == theirs.num_speculative_tokens


def test_rows_that_others_wait_for_shorten_the_block() -> None:
    rates = (0.8, 0.8, 0.8)
    lengths = [best_block(rates, times(others=0.05), others_rate, 16).length for others_rate in (0.0, 3.0, 8.0)]
    assert lengths[0] > lengths[1] > lengths[2]


def test_no_estimate_makes_a_block_shorter_than_a_plain_round() -> None:
    assert best_block((0.0, 0.0, 0.0), times(base=0.5, per_token=0.01), 0.0, 16).rate <= 1.0
