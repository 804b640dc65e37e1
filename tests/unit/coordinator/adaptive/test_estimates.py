"""Running estimates: what was seen lately counts, single outliers hardly do."""

import random

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.acceptance import GroupAcceptance, OutputAcceptance, count
from coordinator.adaptive.probe_budget import LEAST_SHARE, MOST_SHARE, ProbeBudget
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.running_mean import RunningMean
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


def plain_round(rest: float, rows: int = 1) -> SimulatedRound:
    return SimulatedRound(
        asked=0,
        drafted_count=0,
        accepted_count=0,
        elapsed=rest,
        period=rest,
        draft_elapsed=0.0,
        draft_compute=0.0,
        verify_compute=0.8 * rest,
        batch_token_count=rows,
    )


def proposing_round(asked: int, rest: float, step: float, row: float, start: float = 0.0) -> SimulatedRound:
    """A round whose call to the draft takes 2 beside its computation: the start and the steps."""
    computing = start + step * asked
    drafting = 2.0 + computing
    return SimulatedRound(
        asked=asked,
        drafted_count=asked,
        accepted_count=asked,
        elapsed=rest + drafting + row * asked,
        period=rest + drafting + row * asked,
        draft_elapsed=drafting,
        draft_compute=computing,
        verify_compute=80.0 + row * asked,
        batch_token_count=asked + 1,
    )


def test_costs_are_a_rest_the_draft_and_the_rows() -> None:
    costs, draw = RoundCosts(), random.Random(0)
    assert costs.plain_time is None
    for _ in range(100):
        costs.add(plain_round(100.0), load=1, most_rows=20)
        costs.add(proposing_round(draw.randint(1, 6), rest=100.0, step=7.0, row=3.0), load=1, most_rows=20)
    times = costs.times()
    assert costs.plain_time == times.plain == pytest.approx(100.0, rel=0.02)
    assert times.base == pytest.approx(102.0, rel=0.02)
    assert times.step == pytest.approx(7.0) and times.row == pytest.approx(3.0, rel=0.1)


def test_the_start_of_a_draft_call_is_no_part_of_its_steps() -> None:
    costs, draw = RoundCosts(), random.Random(0)
    for _ in range(100):
        costs.add(plain_round(100.0), load=1, most_rows=20)
        costs.add(proposing_round(draw.randint(1, 6), 100.0, step=3.0, row=2.0, start=8.0), load=1, most_rows=20)
    times = costs.times()
    assert times.step == pytest.approx(3.0, rel=0.1)
    assert times.base == pytest.approx(110.0, rel=0.02)


def test_a_machine_that_was_slow_makes_rows_no_dearer() -> None:
    """Long blocks on a slow machine, short ones on a fast one: only rounds beside each other are compared."""
    costs, draw = RoundCosts(), random.Random(0)
    for i in range(600):
        is_slow = i // 100 % 2 == 0
        outcome = proposing_round(draw.randint(1, 4) + 2 * is_slow, 130.0 if is_slow else 100.0, step=3.0, row=2.0)
        verify = outcome.verify_compute + 30.0 * is_slow
        costs.add(outcome._replace(verify_compute=verify), load=1, most_rows=20)
    assert costs.times().row == pytest.approx(2.0, rel=0.25)


@pytest.mark.parametrize(("load", "base"), [(1, 102.0), (2, 132.0)])
def test_a_draft_that_slows_the_target_down_is_seen_among_plain_rounds(load: int, base: float) -> None:
    """With one output the two never work at once: what looks like it is a machine that was slow for a moment."""
    costs = RoundCosts()
    for i in range(1500):
        is_proposing = i % 10 == 9
        costs.add(proposing_round(1, 130.0, 7.0, 0.0) if is_proposing else plain_round(100.0), load=load, most_rows=20)
    assert costs.times().base == pytest.approx(base, rel=0.05)


@pytest.mark.parametrize("at", [1, 3, 20])
def test_a_stall_moves_costs_by_a_few_rounds_at_most(at: int) -> None:
    costs = RoundCosts()
    for i in range(40):
        costs.add(plain_round(10_000.0 if i == at else 100.0), load=1, most_rows=20)
    assert costs.plain_time is None and costs.times().plain < 115.0


def test_a_full_pass_is_no_stall() -> None:
    """Where all outputs propose much, a pass takes many times as long as the mean: that is what rows cost."""
    costs, draw = RoundCosts(), random.Random(0)
    costs.add(proposing_round(1, 100.0, 7.0, 4.0), load=16, most_rows=1000)
    for _ in range(300):
        rows = 250 if draw.random() < 0.05 else 16
        outcome = plain_round(100.0, rows)._replace(verify_compute=20.0 + 4.0 * rows)
        costs.add(outcome, load=16, most_rows=1000)
    assert costs.times().row == pytest.approx(4.0, rel=0.1)


def test_a_pass_that_fed_a_prompt_tells_nothing() -> None:
    costs = RoundCosts()
    for _ in range(10):
        costs.add(plain_round(100.0), load=1, most_rows=20)
        costs.add(plain_round(300.0, rows=60), load=1, most_rows=20)
    assert costs.times().plain == pytest.approx(100.0)


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
