"""A group of outputs for which proposals do not pay: it costs hardly anything, and finds out together."""

from collections import defaultdict

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, LengthController, OutputLength, output_length
from coordinator.adaptive.group import IDLE_ROUNDS
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.probe_budget import MOST_JOINING, ProbeBudget
from coordinator.adaptive.probe_price import expected_delay, price
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import Workload
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

CHEAP_ROWS = ((1, 10.0), (64, 12.0))
MIDDLING_ROWS = ((1, 10.0), (64, 35.2))
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
    rounds = [sorted(run_round(outputs)) for _ in range(2000)]
    probes = [lengths for lengths in rounds[400:] if any(lengths)]
    assert probes and all(lengths == [0] * (16 - MOST_JOINING) + [1] * MOST_JOINING for lengths in probes)


def ready_to_probe() -> OutputLength:
    """An output whose proposals did not pay, with a credit for probes."""
    (output,) = entered(controller_of(CHEAP_ROWS), 1)
    for _ in range(400):
        run_round([output])
    output._group.probes._credit = 3.0
    return output


def test_an_output_whose_probe_is_still_to_come_makes_no_other() -> None:
    output = ready_to_probe()
    assert not any(output.decide(4, may_probe=False).is_probe for _ in range(2 * IDLE_ROUNDS))
    assert any(output.decide(4).is_probe for _ in range(2 * IDLE_ROUNDS))


def test_a_call_that_a_probe_takes_is_paid_for() -> None:
    """By what it is longer than a round of a run."""
    output = ready_to_probe()
    assert any(output.decide(4).is_probe for _ in range(2 * IDLE_ROUNDS))
    credit = output._group.probes._credit
    output.pay_delay(SimulatedRound(0, 0, 0, 22.0, 22.0, 0.0, 0.0, 21.0, 1))
    output.pay_delay(SimulatedRound(1, 1, 0, 22.0, 22.0, 0.0, 0.0, 21.0, 2))  # that is no plain round
    assert output._group.probes._credit == pytest.approx(credit - 1.0, abs=0.1)


def promise(outputs: list[OutputLength], decisions: list[Decision]) -> None:
    """Those that do not propose promise it, and so do probes, which are followed by a plain round."""
    for output, decision in zip(outputs, decisions, strict=True):
        output.contribution.set_promised(is_promised=decision.is_probe or not decision.length)


def probes_of(outputs: list[OutputLength], *, is_promised: bool) -> list[Decision]:
    """The first round with probes."""
    for _ in range(1000):
        decisions = [output.decide(4) for output in outputs]
        if is_promised:
            promise(outputs, decisions)
        if any(decision.is_probe for decision in decisions):
            return decisions
        for output in outputs:
            output.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, len(outputs)))
    raise AssertionError("nobody probed")


def paid(*, is_promised: bool) -> float:
    """Tokens that a round of probes costs sixteen outputs: each probe takes twice as long as a plain round."""
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    for _ in range(100):
        run_round(outputs)
    decisions, budget = probes_of(outputs, is_promised=is_promised), outputs[0]._group.probes
    before = budget._credit
    probing = [output for output, decision in zip(outputs, decisions, strict=True) if decision.is_probe]
    assert len(probing) == MOST_JOINING
    expected = sum(output._expected - 1.0 for output in probing)
    for output in probing:
        output.add(SimulatedRound(1, 1, 0, 2.0 * output._plain_time, 22.0, 3.0, 1.0, 10.0, 20))
    return before - budget._credit + expected


def test_a_probe_is_paid_for_by_those_who_waited_for_it() -> None:
    """Outputs whose next round was promised wait for nobody: only their passes get longer."""
    assert paid(is_promised=False) == pytest.approx(16 * 1.0, rel=0.1), "sixteen outputs lost a round"
    assert paid(is_promised=True) == pytest.approx(MOST_JOINING * 1.0, rel=0.1), "those that probed did"


def test_the_rows_of_a_probe_lengthen_the_pass_of_those_who_do_not_wait() -> None:
    """A row takes 0.4 of a plain round of 17."""
    outputs = entered(controller_of(MIDDLING_ROWS), 16)
    for _ in range(2):
        run_round(outputs, pass_time=16.0)
    workload = outputs[0]._workload
    times, load = workload.times(), workload.load
    for output in outputs:
        output.contribution.set_promised(is_promised=True)
    assert price(times, load, 4, 1, late=1.0, rows=0) == 4.0
    assert price(times, load, 4, 1, late=1.0, rows=4) == pytest.approx(4.0 + 12 * 4 * 0.4 / 17.0, rel=0.05)


def test_one_output_that_waits_for_nobody_makes_the_others_no_later() -> None:
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    for _ in range(2):
        run_round(outputs)
    times, load = outputs[0]._workload.times(), outputs[0]._workload.load
    without = price(times, load, 4, 1, late=expected_delay(times, load, 4, 1), rows=4)
    outputs[0].contribution.set_promised(is_promised=True)
    late = expected_delay(times, load, 4, 1)
    assert late == 1 and price(times, load, 4, 1, late=late, rows=4) < without + 4 * late


def test_the_nodes_of_a_tree_are_rows_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = set[float]()

    def note(*_args: object, **named: float) -> float:
        rows.add(named["rows"])
        return 0.0

    monkeypatch.setattr(output_length, "price", note)
    controller = controller_of(CHEAP_ROWS)
    outputs = [controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None, 16) for _ in range(4)]
    for _ in range(60):
        run_round(outputs)
    assert 4 * 16.0 in rows


def test_nobody_else_probes_until_the_probes_are_paid() -> None:
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    outputs[0]._group.probes._credit = 40.0
    decisions = probes_of(outputs, is_promised=True)
    waiting = [output for output, decision in zip(outputs, decisions, strict=True) if decision.is_probe]
    others = [output for output in outputs if output not in waiting]
    for _ in range(3):
        for output in others:
            output.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 12))
        assert not any(output.decide(4).is_probe for output in others)
    assert outputs[0]._group.probes.out_count == MOST_JOINING
    for output in waiting:
        output.add(SimulatedRound(1, 1, 0, 22.0, 22.0, 3.0, 1.0, 10.0, 20))
    assert outputs[0]._group.probes.out_count == 0


def test_a_probe_that_has_to_wait_for_a_promised_round_is_made_after_it() -> None:
    """By the same outputs, whoever decides first: each of them gave up a pass for it."""
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    for _ in range(100):
        run_round(outputs)
    decisions = probes_of(outputs, is_promised=True)
    due = [output for output, decision in zip(outputs, decisions, strict=True) if decision.is_probe]
    for output in due:
        output.use(Decision(0))
        output.postpone_probe()
    for output in outputs:
        output.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 16))
    others = [output for output in outputs if output not in due]
    assert not any(output.decide(4).length for output in others)
    assert all(output.decide(4).is_probe for output in due)
    assert outputs[0]._group.probes.out_count == MOST_JOINING
    due[0].use(Decision(0))
    due[0].postpone_probe()
    due[0].leave()
    assert outputs[0]._group.probes.out_count == MOST_JOINING - 1


def test_a_client_that_does_not_read_holds_up_no_probes() -> None:
    """Its probe is not known, and not made later either."""
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    for _ in range(100):
        run_round(outputs)
    decisions = probes_of(outputs, is_promised=True)
    paused = next(output for output, decision in zip(outputs, decisions, strict=True) if decision.is_probe)
    paused.use(Decision(0))
    paused.postpone_probe()
    for output, decision in zip(outputs, decisions, strict=True):
        if output is not paused:
            output.add(SimulatedRound(decision.length, decision.length, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 16))
    others = [output for output in outputs if output is not paused]
    assert any(decision.is_probe for decision in probes_of(others, is_promised=True))
    others[0]._group.probes._joining = 0
    assert not paused.decide(4).is_probe


def test_a_probe_that_was_promised_away_or_left_is_not_out() -> None:
    outputs = entered(controller_of(CHEAP_ROWS), 16)
    probes = outputs[0]._group.probes
    decisions = probes_of(outputs, is_promised=False)
    first, second, *_ = (output for output, decision in zip(outputs, decisions, strict=True) if decision.is_probe)
    first.use(Decision(0))
    second.leave()
    assert probes.out_count == MOST_JOINING - 2


@pytest.mark.parametrize(("count", "is_other_there"), [(4, False), (16, True)])
def test_what_a_probe_will_cost_is_the_same_before_and_after_its_promise_is_withheld(
    count: int, is_other_there: bool
) -> None:
    """A probe is decided on twice: first the next round is not promised, then it is made."""
    outputs = entered(controller_of(CHEAP_ROWS), count)
    for _ in range(2):
        run_round(outputs)
    workload = outputs[0]._workload
    prices = list[float]()
    for promised in (outputs, outputs[MOST_JOINING:]):
        for output in outputs:
            output.contribution.set_promised(is_promised=output in promised)
        times, load = workload.times(), workload.load
        late = expected_delay(times, load, MOST_JOINING, 1)
        assert (late == 1) == is_other_there, "who asks the draft misses the pass that others begin"
        prices.append(price(times, load, MOST_JOINING, 1, late=late, rows=MOST_JOINING))
    assert prices[0] == prices[1] < 1.2 * MOST_JOINING


def test_an_output_that_has_ended_is_not_promised() -> None:
    first, second = entered(controller_of(CHEAP_ROWS), 2)
    for output in (first, second):
        output.contribution.set_promised(is_promised=True)
    load = first._workload.load
    assert load.promised_count == 2
    first.contribution.set_promised(is_promised=False)
    second.leave()
    assert load.promised_count == 0


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
