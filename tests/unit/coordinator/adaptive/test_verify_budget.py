"""All outputs share the rows of a pass: the plan is the best of all, and made for all together."""

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.survivals import count_above, survivals
from coordinator.adaptive.verify_budget import NOTHING, Plan, RoundTimes, VerifyBudget, best_plan
from specpair.model_info import PassCost

FLAT = ((1, 10.0), (512, 10.0))
STEEP = ((1, 10.0), (2, 15.0), (512, 2565.0))
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
def test_with_equal_chances_no_other_lengths_are_faster(
    rates: list[tuple[float, float, float]], curve: tuple[tuple[int, float], ...], step: float
) -> None:
    """Rows go to the most likely tokens. What is taken is the best number of them, if not of every combination: one
    long block may be worth less than it costs all others in steps of the draft."""
    chances, costs = [survivals(own, 4) for own in rates], times(curve, step)
    plan = best_plan(chances, 0.0, 0.0, costs)
    own = rate(planned(plan, chances), chances, costs)
    assert plan.gain * rate((0,) * len(chances), chances, costs) == pytest.approx(own)
    by_threshold = {planned(Plan(least, 4, 1.0, 1.0), chances) for least in (2.0, *(c for one in chances for c in one))}
    assert own == pytest.approx(max(rate(lengths, chances, costs) for lengths in by_threshold))
    if len(set(rates)) == 1:
        same = (rate((length,) * len(chances), chances, costs) for length in range(5))
        assert own >= max(same) * (1 - 1e-9)


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


@dataclass(eq=False)
class Fake:
    """An output with fixed chances."""

    contribution: Contribution
    survivals: list[float] = field(default_factory=list)


def test_the_plan_is_kept_for_some_decisions_and_made_anew_when_outputs_come() -> None:
    load, made = Load(), []
    budget = VerifyBudget(load)

    def costs() -> RoundTimes:
        made.append(1)
        return times(FLAT)

    members = [Fake(Contribution(load), survivals((0.8, 0.8, 0.8), 8)) for _ in range(8)]
    for member in members:
        budget.enter(member)
    for _ in range(8):
        assert budget.plan(costs).longest
    assert len(made) == 2
    budget.leave(members.pop())
    budget.plan(costs)
    assert len(made) == 3


def test_to_begin_proposals_have_to_be_clearly_better() -> None:
    """Once they are on, any gain keeps them."""
    load = Load()
    budget, member = VerifyBudget(load), Fake(Contribution(load))
    budget.enter(member)
    costs = times(BENT, step=4.0)

    def lengths(chance: float) -> int:
        member.survivals = [chance]
        return budget.plan(lambda: costs).longest

    break_even = costs.of_all(1, 1) / costs.plain(1) - 1.0
    assert lengths(break_even + 0.02) == 0
    assert lengths(break_even + 0.2) == 1
    assert lengths(break_even + 0.02) == 1
    assert lengths(break_even - 0.02) == 0


def test_where_many_share_passes_a_plan_has_to_gain_more() -> None:
    costs, planned_for = times(FLAT, step=3.0), {}
    for count in (1, 16):
        load = Load()
        budget, members = VerifyBudget(load), [Fake(Contribution(load), [0.6]) for _ in range(count)]
        for member in members:
            budget.enter(member)
        assert 1.05 < best_plan([[0.6]] * count, 0.0, 0.0, costs).gain < 1.2
        planned_for[count] = budget.plan(lambda: costs).longest
    assert planned_for == {1: 1, 16: 0}
