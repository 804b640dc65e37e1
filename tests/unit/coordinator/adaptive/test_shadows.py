"""Outputs that can tell from their text what would be accepted: they probe beside plain rounds."""

from itertools import pairwise

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, LengthController, OutputLength
from coordinator.adaptive.probe_budget import SHADOW_ROUNDS
from coordinator.adaptive.probe_price import PROBE_LENGTH, SHADOW_SECONDS, shadow_price
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

UNIT = 0.001
"""Seconds of the times below."""
CHEAP_ROWS = ((1, 10.0), (64, 12.0))
DEAR_ROWS = ((1, 10.0), (64, 640.0))


def entered(
    count: int,
    curve: tuple[tuple[int, float], ...] = CHEAP_ROWS,
    *,
    drafter: Drafter = Drafter.NGRAM,
    has_shadows: bool = True,
) -> list[OutputLength]:
    controller = LengthController()
    costs = tuple(PassCost(token_count=rows, seconds=seconds * UNIT) for rows, seconds in curve)
    controller.publish(costs, (PassCost(token_count=1, seconds=UNIT),))
    return [controller.enter(drafter, Rule.COUPLED, 1.0, None, has_shadows=has_shadows) for _ in range(count)]


def run_round(outputs: list[OutputLength], accepted: int) -> list[Decision]:
    """One round of all outputs in one pass. Of a proposal, with or without a target, so many tokens are right."""
    decisions = [output.decide(8) for output in outputs]
    rows = sum(decision.length + 1 for decision in decisions)
    waited = 3.0 * UNIT * any(decision.length for decision in decisions)
    for output, decision in zip(outputs, decisions, strict=True):
        time, right = 11.0 * UNIT + waited, min(accepted, decision.length)
        output.add(SimulatedRound(decision.length, decision.length, right, time, time, waited, UNIT, 10.0 * UNIT, rows))
        if decision.shadow_length:
            output.add_guess(decision.shadow_length, decision.shadow_length)
            output.add_shadow(decision.shadow_length, min(accepted, decision.shadow_length))
    return decisions


def shadows(decisions: list[Decision]) -> list[int]:
    return [decision.shadow_length for decision in decisions if decision.shadow_length]


def failing(count: int, rounds: int, *, has_shadows: bool = True) -> list[list[Decision]]:
    outputs = entered(count, has_shadows=has_shadows)
    return [run_round(outputs, 0) for _ in range(rounds)]


@pytest.mark.parametrize("count", [1, 16])
def test_where_proposals_fail_they_probe_beside_plain_rounds(count: int) -> None:
    rounds = failing(count, 600)[100:]
    made = [shadows(decisions) for decisions in rounds if shadows(decisions)]
    assert made and all(each == [PROBE_LENGTH] * count for each in made)
    decisions = [decision for each in rounds for decision in each]
    assert not any(decision.length or decision.is_probe for decision in decisions), "no round waits for anything"


def test_others_probe_by_proposals() -> None:
    decisions = [decision for each in failing(16, 3000, has_shadows=False) for decision in each]
    assert any(decision.is_probe for decision in decisions) and not shadows(decisions)


def test_what_they_say_is_awaited_before_the_next() -> None:
    outputs = entered(16)
    rounds = [number for number in range(100) if shadows(run_round(outputs, 0))]
    assert len(rounds) > 2
    assert min(later - number for number, later in pairwise(rounds)) >= SHADOW_ROUNDS


def test_a_draft_that_comes_to_be_right_is_found_by_them() -> None:
    outputs = entered(16)
    for _ in range(600):
        run_round(outputs, 0)
    late = [run_round(outputs, 8) for _ in range(400)]
    assert sum(decision.length > 0 for decision in late[-1]) == 16
    first = next(number for number, decisions in enumerate(late) if any(decision.length for decision in decisions))
    assert first < 300 and not any(decision.is_probe for decisions in late for decision in decisions)


def test_they_become_rarer_while_they_find_nothing() -> None:
    outputs = entered(16)
    counts = [len(shadows(run_round(outputs, 0))) for _ in range(1000)]
    assert sum(counts[:100]) > 2 * sum(counts[-100:]) > 0


def test_one_that_would_not_have_been_worth_its_time_finds_nothing() -> None:
    """One more row of each output takes 1.5 times as long as all, the next ones hardly more."""
    curve = ((1, 10.0), (16, 10.0), (24, 25.0), (80, 30.0))
    shares = []
    for accepted in (0, 1, 4):
        outputs = entered(16, curve)
        run_round(outputs, 0)
        for _ in range(40):
            outputs[0].add_shadow(PROBE_LENGTH, accepted)
        shares.append(outputs[0]._group.probes._share)
    assert shares[0] == shares[1] < shares[2]


def test_nobody_asks_where_no_draft_could_pay() -> None:
    outputs = entered(16, DEAR_ROWS)
    assert not any(shadows(run_round(outputs, 0)) for _ in range(500))


@pytest.mark.parametrize("longest", [1, 3])
def test_none_is_longer_than_what_may_be_proposed(longest: int) -> None:
    (output,) = entered(1)
    for _ in range(2000):
        decision = output.decide(longest)
        assert decision.shadow_length <= longest
        time = 11.0 * UNIT
        output.add(SimulatedRound(decision.length, decision.length, 0, time, time, 0.0, 0.0, 10.0 * UNIT, 1))
        if decision.shadow_length:
            return output.add_shadow(decision.shadow_length, 0)
    raise AssertionError("it never probed")


def test_they_cost_what_all_outputs_wait_for() -> None:
    outputs = entered(16)
    times, load = outputs[0]._workload.times(), outputs[0]._workload.load
    assert shadow_price(times, load, 4) * times.plain(16) / 16 == pytest.approx(4 * SHADOW_SECONDS)
    for _ in range(100):
        run_round(outputs, 0)
    made, before = list[int](), 0.0
    while not made:
        before = outputs[0]._group.probes._credit
        made = shadows(run_round(outputs, 0))
    assert made == [PROBE_LENGTH] * 16
    assert before - outputs[0]._group.probes._credit == pytest.approx(shadow_price(times, load, 16), rel=0.2)


def test_how_many_tokens_there_are_is_learned_from_them() -> None:
    """A drafter that often has none costs few rows."""
    outputs = entered(16)
    run_round(outputs, 0)
    for _ in range(40):
        outputs[0].add_guess(4, 1)
    outputs[0]._workload._fresh = 0
    assert outputs[0]._workload.times().drafted_share == pytest.approx(0.25)


def test_outputs_with_and_without_shadows_are_no_group() -> None:
    """Those without would join a round of shadows with probes that others wait for."""
    controller = LengthController()
    one, other = (
        controller.enter(Drafter.NGRAM, Rule.TOKEN, 0.0, None, has_shadows=has_shadows) for has_shadows in (True, False)
    )
    assert one._group is not other._group and one._workload is other._workload
