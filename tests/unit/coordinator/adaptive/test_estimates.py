"""Running estimates: what was seen lately counts, single outliers hardly do."""

import random

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.acceptance import GroupAcceptance, OutputAcceptance, count
from coordinator.adaptive.controller import LengthController
from coordinator.adaptive.output_length import Decision
from coordinator.adaptive.probe_budget import (
    FIRST_CREDIT,
    LEAST_SHARE,
    MOST_JOINING,
    MOST_SHARE,
    ProbeBudget,
)
from coordinator.adaptive.probe_price import PROBE_LENGTH
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.running_mean import RunningMean
from coordinator.adaptive.slowdown import Slowdown
from specpair.options import Drafter, Rule
from specpair.running_slope import RunningSlope


def test_a_running_mean_is_a_plain_mean_until_its_memory_is_full() -> None:
    mean = RunningMean(4)
    for sample in (1.0, 2.0, 6.0):
        mean.add(sample)
    assert mean.value == pytest.approx(3.0)
    for _ in range(40):
        mean.add(10.0)
    assert mean.value == pytest.approx(10.0, rel=1e-3)


def test_a_slope_is_its_prior_until_samples_say_more() -> None:
    slope = RunningSlope(256)
    assert slope.slope(3.0, 4.0) == 3.0
    for _ in range(100):
        slope.add(5.0, 135.0)
    assert slope.slope(3.0, 4.0) == pytest.approx(3.0), "one x tells nothing of a slope"
    draw = random.Random(0)
    for _ in range(200):
        x = draw.randint(1, 8)
        slope.add(x, 100.0 + 7.0 * x + draw.gauss(0.0, 2.0))
    assert slope.slope(3.0, 4.0) == pytest.approx(7.0, abs=0.3)
    assert RunningSlope(8).slope(-1.0, 1.0) == 0.0


def test_a_slope_of_neighbouring_samples_leaves_a_drift_out() -> None:
    draw, slope, drifting = random.Random(0), RunningSlope(256), RunningSlope(256, mean_memory=2)
    for i in range(600):
        is_slow = i // 60 % 2 == 0
        x, level = draw.randint(1, 4) + 3 * is_slow, 130.0 if is_slow else 100.0
        for each in (slope, drifting):
            each.add(x, level + 7.0 * x)
    assert slope.slope(0.0, 1.0) > 11.0
    assert drifting.slope(0.0, 1.0) == pytest.approx(7.0, rel=0.2)


def plain_round(rest: float, rows: int = 1, verify: float = 80.0) -> SimulatedRound:
    return SimulatedRound(
        asked=0,
        drafted_count=0,
        accepted_count=0,
        elapsed=rest + verify,
        period=rest + verify,
        draft_elapsed=0.0,
        draft_compute=0.0,
        verify_compute=verify,
        batch_token_count=rows,
    )


def proposing_round(asked: int, rest: float, step: float, start: float = 0.0) -> SimulatedRound:
    """A round whose call to the draft takes 2 beside its computation: the start and the steps."""
    computing = start + step * asked
    return SimulatedRound(
        asked=asked,
        drafted_count=asked,
        accepted_count=asked,
        elapsed=rest + 2.0 + computing + 80.0,
        period=rest + 2.0 + computing + 80.0,
        draft_elapsed=2.0 + computing,
        draft_compute=computing,
        verify_compute=80.0,
        batch_token_count=asked + 1,
    )


def test_the_rest_of_a_round_is_its_time_without_draft_and_pass() -> None:
    plain, proposing, draw = RoundCosts(), RoundCosts(), random.Random(0)
    for _ in range(20):
        plain.add(plain_round(20.0), load=1, row_count=1)
        proposing.add(proposing_round(draw.randint(1, 6), rest=25.0, step=7.0), load=1, row_count=7)
    assert plain.rest == pytest.approx(20.0) and proposing.rest == pytest.approx(25.0)
    assert plain.together == 1.0, "a single output is always in step with itself"


def test_of_outputs_in_two_groups_each_pass_has_half_the_rows() -> None:
    """Every round waits for the pass of the other group, which is no part of the rest."""
    costs = RoundCosts()
    for _ in range(60):
        costs.add(plain_round(85.0, rows=2), load=4, row_count=4)
    assert costs.together == pytest.approx(0.5) and costs.rest == pytest.approx(5.0)


@pytest.mark.parametrize("at", [1, 3, 20])
def test_a_stall_is_no_part_of_the_rest(at: int) -> None:
    costs = RoundCosts()
    for i in range(40):
        costs.add(plain_round(10_000.0 if i == at else 20.0), load=1, row_count=1)
    assert costs.rest == pytest.approx(20.0)


def test_a_draft_on_the_same_processor_is_seen_where_proposals_begin_or_end() -> None:
    slowdown, speed = Slowdown(), 1.0
    for phase in range(30):
        is_proposing, speed = phase % 2 == 1, speed * 1.03
        for _ in range(8):
            slowdown.add(speed * (1.5 if is_proposing else 1.0), 4, is_proposing=is_proposing)
    assert slowdown.ratio == pytest.approx(1.5, rel=0.08), "the machine itself gets slower all the time"


def test_a_machine_that_changes_while_outputs_propose_has_no_slowdown() -> None:
    slowdown = Slowdown()
    for speed in (1.0, 2.0, 0.5, 3.0):
        for _ in range(20):
            slowdown.add(speed, 4, is_proposing=True)
    assert slowdown.ratio == 1.0


@pytest.mark.parametrize(("plain_count", "forgets"), [(8, False), (16, True)])
def test_passes_that_are_not_beside_each_other_are_not_compared(plain_count: int, forgets: bool) -> None:
    """Those of another number of outputs: the more are answered, the slower a pass may be, whether they propose or not.
    And those between which others were dropped."""
    slowdown = Slowdown()
    for phase in range(8):
        is_proposing = phase % 2 == 1
        for _ in range(8):
            slowdown.add(2.0 if is_proposing else 1.0, 16 if is_proposing else plain_count, is_proposing=is_proposing)
        if forgets:
            slowdown.forget()
    assert slowdown.ratio == 1.0


def test_a_position_is_tried_only_if_those_before_it_were_accepted() -> None:
    tried, accepted = [0.0] * 3, [0.0] * 3
    for asked, accepted_count in ((4, 2), (2, 2), (1, 0), (5, 5)):
        count(tried, accepted, asked, accepted_count, 1e9)
    assert [round(number, 3) for number in tried] == [4, 3, 4]
    assert [round(number, 3) for number in accepted] == [3, 3, 3]


def test_an_unknown_group_is_hoped_for_and_a_known_one_believed() -> None:
    group = GroupAcceptance()
    assert OutputAcceptance(group).rates() == pytest.approx((0.6, 0.65, 0.7))
    for _ in range(30):
        output = OutputAcceptance(group)
        for _ in range(20):
            output.add(asked=3, accepted=0)
    assert OutputAcceptance(group).rates()[0] < 0.03


def test_an_output_unlike_its_group_is_believed_soon() -> None:
    group = GroupAcceptance()
    for _ in range(200):
        OutputAcceptance(group).add(asked=1, accepted=0)
    output = OutputAcceptance(group)
    for _ in range(6):
        output.add(asked=1, accepted=1)
    assert output.rates()[0] > 0.3


def test_a_text_that_changes_is_noticed() -> None:
    draw, output = random.Random(0), OutputAcceptance(GroupAcceptance())
    for _ in range(60):
        output.add(asked=1, accepted=int(draw.random() < 0.85))
    assert output.rates()[0] > 0.75
    for _ in range(30):
        output.add(asked=1, accepted=0)
    assert output.rates()[0] < 0.5


def test_the_first_probes_of_sixteen_outputs_wait_for_nothing() -> None:
    budget = ProbeBudget()
    for _ in range(16):
        budget.endow()
    assert budget.affords(16 * FIRST_CREDIT)
    for _ in range(MOST_JOINING):
        budget.spend(16 * FIRST_CREDIT / MOST_JOINING, 16)
    assert not budget.affords(0.0), "the next wait for plain rounds"
    for _ in range(1000):
        budget.endow()
    assert not budget.affords(16 * FIRST_CREDIT + 0.1), "many short outputs do not add up"


def test_outputs_of_a_group_that_knows_its_acceptance_bring_nothing() -> None:
    controller = LengthController()
    group = controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)._group
    assert group.probes.affords(FIRST_CREDIT)
    group.probes.spend(FIRST_CREDIT)
    group.acceptance.add(1, 1)
    controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)
    assert not group.probes.affords(0.0)


def test_a_probe_waits_until_plain_rounds_have_paid_for_it() -> None:
    budget = ProbeBudget()
    assert not budget.affords(0.0)
    for _ in range(round(0.2 / MOST_SHARE) + 1):
        budget.earn()
    assert budget.affords(0.2) and not budget.affords(0.3)
    budget.spend(1.0)
    for _ in range(round(0.6 / MOST_SHARE)):
        budget.earn()
    assert not budget.affords(0.0), "what was lost has to be made up for first"


def test_a_probe_that_no_credit_pays_for_is_saved_for() -> None:
    """Twice as long after each that found the draft as slow as it was measured; as at first once it was not."""
    budget = ProbeBudget()
    assert budget.is_beyond(10.0, 1) and not budget.is_beyond(10.0, 16)
    assert not budget.has_saved(-1.0), "one that seems to cost nothing is not made without credit either"
    for factor, seconds in ((1, 0.3), (2, 1.0), (4, 0.2), (1, 1.0)):
        for _ in range(round(factor * 10.0 / MOST_SHARE) - 2):
            assert not budget.has_saved(10.0)
            budget.earn()
        assert not budget.has_saved(10.0)
        for _ in range(5):
            budget.earn()
        assert budget.has_saved(10.0)
        budget.begin(1, 1, doubted=1.0)
        budget.settle(seconds)
        budget.spend(factor * 10.0)


def test_a_probe_made_alone_pays_for_all_that_wait_for_it() -> None:
    """Of eight outputs one probes, and is late by nine plain rounds. Had four probed, each would pay a quarter."""
    paid = []
    for joining in (1, 4):
        controller = LengthController()
        outputs = [controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None) for _ in range(8)]
        for output in outputs:
            output.decide(4)
            output.add(plain_round(20.0))
        budget = outputs[0]._group.probes
        budget._credit = 200.0
        budget.begin(outputs[0]._group.round, joining)
        outputs[0].use(Decision(1, is_probe=True))
        outputs[0]._plain_time = 20.0
        outputs[0].add(proposing_round(1, 20.0, 3.0)._replace(elapsed=200.0, accepted_count=0))
        paid.append(200.0 - budget._credit)
    assert paid[0] == pytest.approx(72.0, abs=2.0) and paid[1] == pytest.approx(18.0, abs=2.0)


def test_probes_that_fail_are_paid_less() -> None:
    budget = ProbeBudget()
    for _ in range(20):
        budget.judge(succeeded=False)
    for _ in range(round(0.1 / LEAST_SHARE) - 2):
        budget.earn()
    assert not budget.affords(0.1)
    budget.judge(succeeded=True)
    budget.earn()
    assert budget.affords(0.1)


def test_where_no_proposal_is_accepted_the_only_ones_left_are_decided_as_probes() -> None:
    length = LengthController().enter(Drafter.MODEL, Rule.TOKEN, 0.0, None)
    decisions = []
    for _ in range(600):
        decisions.append(length.decide(8))
        asked = decisions[-1].length
        length.add(proposing_round(asked, 20.0, 30.0)._replace(accepted_count=0) if asked else plain_round(20.0))
    late = [decision for decision in decisions[300:] if decision.length]
    assert late and all(decision.is_probe for decision in late)
    assert not any(decision.is_probe for decision in decisions if not 1 <= decision.length <= PROBE_LENGTH)


def test_a_position_that_failed_at_first_is_hoped_for_again() -> None:
    """Blocks of one token say nothing about a second one, so its bad beginning must not hold for ever."""
    group = GroupAcceptance()
    output = OutputAcceptance(group)
    for _ in range(8):
        output.add(asked=2, accepted=1)
    assert group.rate(1) < 0.3 and output.rates()[1] < 0.2
    for _ in range(60):
        output.add(asked=1, accepted=0)
    assert group.rate(1) < 0.3, "the way to it was not open"
    for _ in range(60):
        output.add(asked=1, accepted=1)
    assert group.rate(1) == pytest.approx(group.rate(0), abs=0.08)
    assert output.rates()[1] == pytest.approx(group.rate(0), abs=0.08)
    assert output.rates()[0] > 0.5


def test_a_second_token_is_hoped_to_be_right_as_often_as_the_first() -> None:
    """Probes ask for one token alone. Trials of the second one count more than what was hoped of it."""
    group = GroupAcceptance()
    for _ in range(40):
        group.add(1, 1)
    assert group.rate(2) >= group.rate(1) >= group.rate(0) > 0.95
    for _ in range(40):
        group.add(2, 1)
    assert group.rate(0) > 0.95 and group.rate(1) < 0.1


def test_an_output_that_goes_without_proposals_comes_back_to_its_group() -> None:
    """A bad run at its beginning says little about a text forty rounds later; the group's own rate stays."""
    group = GroupAcceptance()
    for i in range(200):
        group.add(1, i % 2)
    output = OutputAcceptance(group)
    for _ in range(12):
        output.add(1, 0)
    first, known = output.rates()[0], group.rate(0)
    assert first < 0.3
    for _ in range(80):
        output.add_plain()
    assert output.rates()[0] > 0.8 * known
    assert group.rate(0) == known
