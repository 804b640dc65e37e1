"""A group of outputs for which proposals do not pay: it costs hardly anything, and finds out together."""

from collections import defaultdict

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, LengthController, OutputLength
from coordinator.adaptive.group import IDLE_ROUNDS
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.probe_budget import MOST_JOINING, ProbeBudget
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import Workload
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

CHEAP_ROWS = ((1, 10.0), (64, 12.0))
DEAR_ROWS = ((1, 10.0), (64, 640.0))
"""Each row takes what a pass of one row takes: even a draft that is always right saves nothing."""


def controller_of(curve: tuple[tuple[int, float], ...]) -> LengthController:
    controller = LengthController()
    costs = tuple(PassCost(token_count=rows, seconds=seconds) for rows, seconds in curve)
    controller.publish(costs, (PassCost(token_count=1, seconds=1.0),))
    return controller


def entered(controller: LengthController, count: int, temperature: float = 0.0) -> list[OutputLength]:
    return [controller.enter(Drafter.MODEL, Rule.BLOCK, temperature, None) for _ in range(count)]


def decided(output: OutputLength) -> Decision:
    """The decision of an output that the draft does not hold yet; its round is plain."""
    decision = output.decide(4, is_ready=False)
    output.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 16))
    return decision


def run_round(outputs: list[OutputLength], pass_time: float = 10.0, *, is_ready: bool = True) -> list[int]:
    """One round of all outputs in one pass, in which nothing is accepted: the tokens that each asked for."""
    lengths = [output.decide(4, is_ready=is_ready).length for output in outputs]
    for output, asked in zip(outputs, lengths, strict=True):
        waited = 3.0 if any(lengths) else 0.0
        output.add(
            SimulatedRound(
                asked=asked,
                drafted_count=asked,
                accepted_count=0,
                elapsed=pass_time + 1.0 + waited,
                period=pass_time + 1.0 + waited,
                draft_elapsed=waited if asked else 0.0,
                draft_compute=1.0,
                verify_compute=pass_time,
                batch_token_count=len(outputs) + sum(lengths),
            )
        )
    return lengths


def test_outputs_probe_together() -> None:
    """One probe delays all that keep step as much as some do."""
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    rounds = [run_round(outputs) for _ in range(2000)]
    probes = [lengths for lengths in rounds[400:] if any(lengths)]
    assert probes and all(sorted(lengths) == [0] * (16 - MOST_JOINING) + [1] * MOST_JOINING for lengths in probes)


def probes_paid(*, is_unattended: bool) -> float:
    """Tokens that a first round of probes costs sixteen outputs, of which those that do not probe wait for it or not:
    each probe takes twice as long as a plain round."""
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    for _ in range(IDLE_ROUNDS):
        run_round(outputs)
    budget = outputs[0]._group.probes
    spent, decisions = list[float](), [output.decide(4) for output in outputs]
    while not any(decision.is_probe for decision in decisions):
        run_round(outputs)
        decisions = [output.decide(4) for output in outputs]
    for output, decision in zip(outputs, decisions, strict=True):
        output.contribution.set_unattended(is_unattended=is_unattended and not decision.is_probe)
    for output, decision in zip(outputs, decisions, strict=True):
        if decision.is_probe:
            before = budget._credit
            output.add(SimulatedRound(1, 1, 0, 22.0, 22.0, 3.0, 1.0, 10.0, 20))
            spent.append(before - budget._credit)
    assert len(spent) == MOST_JOINING
    return sum(spent)


def test_a_probe_is_paid_for_by_those_who_waited_for_it() -> None:
    """Outputs whose next round the target begins by itself wait for nobody: only their passes get a row more."""
    waited_for, alone = probes_paid(is_unattended=False), probes_paid(is_unattended=True)
    assert waited_for == pytest.approx(16 * 1.0, rel=0.25), "sixteen outputs lost a round"
    assert alone == pytest.approx(MOST_JOINING * 1.0, rel=0.5), "those that probed did"


def test_an_output_that_has_ended_is_not_unattended() -> None:
    first, second = entered(controller_of(CHEAP_ROWS), 2)
    for output in (first, second):
        output.contribution.set_unattended(is_unattended=True)
    load = first._workload.load
    assert load.unattended_count == 2
    first.contribution.set_unattended(is_unattended=False)
    second.leave()
    assert load.unattended_count == 0


def test_an_idle_group_looks_at_costs_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = entered(controller_of(CHEAP_ROWS), 8)
    for _ in range(400):
        run_round(outputs)
    looks = list[int]()
    made = Workload.times
    monkeypatch.setattr(Workload, "times", lambda self: looks.append(1) or made(self))
    count = 20 * (IDLE_ROUNDS + 1)
    for _ in range(count):
        run_round(outputs)
    assert 0 < len(looks) < 0.1 * count * len(outputs)


def test_no_probe_where_even_the_best_draft_would_not_pay() -> None:
    outputs = entered(controller_of(DEAR_ROWS), 4)
    rounds = [run_round(outputs, pass_time=40.0) for _ in range(2000)]
    assert not any(any(lengths) for lengths in rounds[100:])


def test_a_trial_that_one_temperature_loses_stops_no_other() -> None:
    controller = controller_of(CHEAP_ROWS)
    cold, warm = entered(controller, 1)[0], entered(controller, 1, temperature=1.0)[0]
    cold._group.trial._held = 100
    assert cold._group.trial.is_on and not warm._group.trial.is_on


def test_a_plain_round_among_plain_rounds_took_what_a_plain_round_takes() -> None:
    outputs = entered(controller_of(CHEAP_ROWS), 2)
    for output in outputs:
        output.decide(0)
    plain = SimulatedRound(0, 0, 0, 17.0, 17.0, 0.0, 0.0, 10.0, 2)
    assert outputs[0].plain_time(plain) == 17.0


@pytest.mark.parametrize(("count", "is_learned"), [(1, False), (2, True)])
def test_a_slower_machine_is_not_taken_for_a_draft_that_slows_passes_of_a_single_output(
    count: int, is_learned: bool
) -> None:
    """Its draft and target take turns, so a pass that gets slower while it proposes got slower by itself."""
    passes = PassCosts()
    passes.publish(tuple(PassCost(token_count=rows, seconds=seconds) for rows, seconds in CHEAP_ROWS))
    workload = Workload(Load(), passes, defaultdict(RoundCosts).__getitem__, lambda _: 1.0)
    contributions = [Contribution(workload.load) for _ in range(count)]
    for turn in range(4):
        asked = turn % 2
        for contribution in contributions:
            contribution.set_row_count(1 + asked)
        for i in range(12):
            verify = 18.0 + 0.01 * i if asked else 10.0 + 0.01 * i
            round_ = SimulatedRound(asked, asked, 0, 22.0, 22.0, 2.0 * asked, 1.0, verify, count * (1 + asked))
            workload.add(round_)
    assert (workload.times().slowdown > 1.1) == is_learned


def test_a_probe_ends_with_its_round_and_is_for_those_whose_sequence_the_draft_holds() -> None:
    budget = ProbeBudget()
    budget.begin(7)
    assert [budget.has_begun(7) and budget.join(is_holder=False) for _ in range(6)] == [True] * 4 + [False] * 2
    budget.holder_count = MOST_JOINING
    budget.begin(8)
    assert [budget.join(is_holder=place > 1) for place in range(4)] == [False] * 2 + [True] * 2
    assert budget.has_begun(8) and not budget.has_begun(9)


def test_after_an_output_that_proposed_nothing_the_draft_reads_no_prompt_early() -> None:
    """Of many requests that come at once the first take themselves for alone."""
    controller = controller_of(CHEAP_ROWS)
    plain = controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, 0)
    plain.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 1))
    plain.leave()
    first = entered(controller, 1)[0]
    assert first.opens_early(4)
    first.leave()
    second = entered(controller, 1)[0]
    assert not second.opens_early(4)
    assert second.decide(4, is_ready=True).length, "it may still propose later"
    second.leave()
    assert entered(controller, 1)[0].opens_early(4)
