"""The best number of proposed tokens, by arithmetic alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.block_length import best_block, block_rate
from coordinator.adaptive.round_costs import RoundTimes
from specpair.theory.speedup import optimum, walltime_factor

CHANCES = st.floats(0.0, 1.0)
SHARES = st.floats(0.0, 2.0)


def times(base: float = 1.0, step: float = 0.1, row: float = 0.0) -> RoundTimes:
    return RoundTimes(plain=1.0, base=base, step=step, row=row)


@given(st.tuples(CHANCES, CHANCES, CHANCES), st.floats(1.0, 3.0), SHARES, SHARES, SHARES)
def test_it_is_the_best_of_all(
    rates: tuple[float, float, float], base: float, step: float, row: float, others_rate: float
) -> None:
    costs = times(base, step, row)
    best = best_block(rates, costs, others_rate, 16)
    every = [block_rate(length, rates, costs, others_rate) for length in range(1, 17)]
    assert best.rate == pytest.approx(max(every))
    assert block_rate(best.length, rates, costs, others_rate) == pytest.approx(best.rate)


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("cost_ratio", "overhead"), [(0.01, 0.0), (0.05, 0.1), (0.3, 0.0), (0.5, 0.4)])
def test_alone_it_is_the_optimum_of_leviathan_et_al(acceptance: float, cost_ratio: float, overhead: float) -> None:
    costs = times(1.0 + overhead, cost_ratio)
    best = best_block((acceptance, acceptance, acceptance), costs, 0.0, 16)
    assert best.rate == pytest.approx(walltime_factor(acceptance, best.length, cost_ratio, overhead))
    theirs = optimum(acceptance, cost_ratio, overhead, limit=16)
    is_off = best.rate <= 1.0 / costs.plain
    assert (0 if is_off else best.length) == theirs.num_speculative_tokens


def test_rows_that_others_wait_for_shorten_the_block() -> None:
    rates, costs = (0.8, 0.8, 0.8), times(row=0.05)
    lengths = [best_block(rates, costs, others_rate, 16).length for others_rate in (0.0, 3.0, 8.0)]
    assert lengths[0] > lengths[1] > lengths[2]
