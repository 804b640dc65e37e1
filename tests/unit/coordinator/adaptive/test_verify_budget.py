"""All outputs share the rows of a pass: the plan is made for all together, and kept for a while."""

from dataclasses import dataclass, field

from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.plan import best_plan
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.survivals import survivals
from coordinator.adaptive.verify_budget import VerifyBudget
from tests.unit.coordinator.adaptive.test_plan import BENT, FLAT, times


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
