"""The plan for all outputs of a pass."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.plan import NOTHING, Plan, best_plan
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.survivals import count_above, survivals
from specpair.model_info import PassCost

FLAT = ((1, 10.0), (512, 10.0))
STEEP = ((1, 10.0), (2, 15.0), (512, 2565.0))
RISING = ((1, 10.0), (512, 163.3))
BENT = ((1, 10.0), (8, 10.0), (16, 20.0), (512, 640.0))


def times(curve: tuple[tuple[int, float], ...], step: float = 0.5, together: float = 1.0) -> RoundTimes:
    passes = PassCosts()
    passes.publish(tuple(PassCost(token_count=rows, seconds=seconds) for rows, seconds in curve))
    return RoundTimes(
        plain_rest=1.0,
        plain_together=1.0,
        rest=1.5,
        together=together,
        draft_rest=1.0,
        step=step,
        passes=passes,
    )


def rate(lengths: tuple[int, ...], chances: list[list[float]], costs: RoundTimes) -> float:
    """Tokens per unit of time if the outputs propose so many, straight from the definition."""
    count, longest = len(chances), max(lengths)
    if not longest:
        return count / costs.plain(count)
    target = costs.target(count + sum(lengths))
    total = 0.0
    for own, length in zip(chances, lengths, strict=True):
        tokens = 1.0 + sum(own[:length])
        draft = costs.draft(longest)
        total += tokens / ((costs.rest + draft if length else costs.plain_rest + costs.waiting * draft) + target)
    return total


def planned(plan: Plan, chances: list[list[float]]) -> tuple[int, ...]:
    return tuple(min(count_above(own, plan.least), plan.longest) for own in chances)


@given(
    rates=st.lists(st.tuples(*[st.floats(0.02, 0.98)] * 3), min_size=1, max_size=3),
    curve=st.sampled_from((FLAT, STEEP, BENT)),
    step=st.floats(0.05, 4.0),
)
def test_neither_the_likeliest_tokens_nor_one_length_for_all_is_faster(
    rates: list[tuple[float, float, float]], curve: tuple[tuple[int, float], ...], step: float
) -> None:
    """Taking the most likely tokens of all outputs is never better, nor is the same length for all where rows cost
    nothing. What is said is what comes of it."""
    chances, costs = [survivals(own, 4) for own in rates], times(curve, step)
    plan = best_plan(chances, 0.0, 0.0, costs)
    own = rate(planned(plan, chances), chances, costs)
    assert plan.gain * rate((0,) * len(chances), chances, costs) == pytest.approx(own)
    by_threshold = {planned(Plan(least, 4, 1.0, 1.0), chances) for least in (2.0, *(c for one in chances for c in one))}
    assert own >= max(rate(lengths, chances, costs) for lengths in by_threshold) * (1 - 1e-9)
    if len(set(rates)) == 1 or curve == FLAT:
        same = (rate((length,) * len(chances), chances, costs) for length in range(5))
        assert own >= max(same) * (1 - 1e-9)


def test_where_rows_cost_nothing_nobody_proposes_less_than_the_longest() -> None:
    """Its steps are drawn anyway. A good output by itself would propose more, a poor one less."""
    chances = [survivals((rate, rate, rate), 12) for rate in (0.9, 0.85, 0.7)]
    own = [planned(best_plan([one], 0.0, 0.0, times(FLAT, step=1.0)), [one])[0] for one in chances]
    first, *others = planned(best_plan(chances, 0.0, 0.0, times(FLAT, step=1.0)), chances)
    assert set(others) == {first}
    assert own[0] > own[1] > own[2]
    steep = planned(best_plan(chances, 0.0, 0.0, times(RISING, step=1.0)), chances)
    assert steep[0] > steep[2]


def test_one_output_gets_its_best_length() -> None:
    for rates, curve, step in product([(0.3, 0.5, 0.5), (0.7, 0.8, 0.9)], [FLAT, STEEP, BENT], [0.2, 2.0]):
        chances, costs = [survivals(rates, 16)], times(curve, step)
        best = max(range(len(chances[0]) + 1), key=lambda length: rate((length,), chances, costs))
        assert planned(best_plan(chances, 0.0, 0.0, costs), chances) == (best,)


def test_rows_go_to_the_outputs_whose_tokens_survive() -> None:
    chances = [survivals((0.9, 0.9, 0.9), 8), survivals((0.5, 0.5, 0.5), 8), survivals((0.02, 0.02, 0.02), 8)]
    sure, unsure, hopeless = planned(best_plan(chances, 0.0, 0.0, times(FLAT)), chances)
    assert sure > unsure > hopeless


def test_a_bend_of_the_curve_ends_the_plan() -> None:
    """Rows are free up to eight, and dear beyond."""
    chances = [survivals((0.6, 0.6, 0.6), 8)] * 4
    assert planned(best_plan(chances, 0.0, 0.0, times(BENT, step=0.1)), chances) == (1, 1, 1, 1)


def test_a_pass_that_is_full_of_other_rows_takes_fewer_tokens() -> None:
    chances = [survivals((0.8, 0.8, 0.8), 8)]
    alone = best_plan(chances, 0.0, 0.0, times(BENT))
    beside = best_plan(chances, 15.0, 15.0, times(BENT))
    assert planned(alone, chances) > planned(beside, chances)


def test_nothing_is_planned_where_nothing_pays() -> None:
    assert best_plan([survivals((0.1, 0.1, 0.1), 8)] * 4, 0.0, 0.0, times(STEEP)) == NOTHING
