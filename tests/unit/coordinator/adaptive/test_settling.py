"""When plain rounds of several outputs can be compared: not while one of them still proposes."""

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, LengthController, OutputLength
from coordinator.adaptive.plain_trial import FIRST_INTERVAL, ROUNDS
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

PROPOSING, PLAIN, SLOWED = 12.0, 10.0, 100.0
"""Seconds of a round: where all propose, where none does, and of one that waits for others."""


def outputs_that_propose(count: int) -> list[OutputLength]:
    """Outputs of a draft that costs little, which have had their first plain round."""
    controller = LengthController()
    costs = (PassCost(token_count=1, seconds=9.0), PassCost(token_count=64, seconds=9.1))
    controller.publish(costs, (PassCost(token_count=1, seconds=0.1),))
    outputs = [controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None) for _ in range(count)]
    for output in outputs:
        end(output, output.decide(0), PLAIN)
    return outputs


def end(output: OutputLength, decision: Decision, elapsed: float) -> None:
    asked = decision.length
    output.add(
        SimulatedRound(
            asked=asked,
            drafted_count=asked,
            accepted_count=asked,
            elapsed=elapsed,
            period=elapsed,
            draft_elapsed=0.1 if asked else 0.0,
            draft_compute=0.1,
            verify_compute=9.0,
            batch_token_count=4,
        )
    )


def all_rounds(outputs: list[OutputLength]) -> None:
    """One round of each."""
    decisions = [output.decide(4) for output in outputs]
    for output, decision in zip(outputs, decisions, strict=True):
        end(output, decision, PROPOSING if decision.length else PLAIN)


def on_trial(count: int) -> list[OutputLength]:
    outputs = outputs_that_propose(count)
    for _ in range(2 * FIRST_INTERVAL):
        all_rounds(outputs)
        if outputs[0]._group.trial.is_on:
            return outputs
    raise AssertionError("no trial began")


def test_the_first_plain_round_of_a_comparison_settles_and_those_after_it_do_not() -> None:
    outputs = on_trial(2)
    decisions = [output.decide(4) for output in outputs]
    assert not any(decision.length for decision in decisions)
    assert [output.is_settling for output in outputs] == [True, True]
    assert not any(output._settling.is_over for output in outputs), "they may wait for their own proposals' pass"
    end(outputs[0], decisions[0], SLOWED)
    outputs[0].decide(4)
    assert [output.is_settling for output in outputs] == [False, True]
    assert outputs[0]._settling.is_over


def test_a_call_beside_one_that_proposes_is_no_part_of_a_comparison() -> None:
    """One output began its last proposal just before the comparison: what others do meanwhile waits for it."""
    outputs = outputs_that_propose(3)
    first, second, late = outputs
    decisions = list[Decision]()
    while not first._group.trial.is_on:
        decisions = [output.decide(4) for output in outputs]
        for output, decision in list(zip(outputs, decisions, strict=True))[:2]:
            end(output, decision, PROPOSING)
    trial = first._group.trial
    for _ in range(3):
        for output in (first, second):
            end(output, output.decide(4), SLOWED)
    assert not trial._plain
    end(late, decisions[2], PROPOSING)
    for _ in range(ROUNDS):
        for output in outputs:
            end(output, output.decide(4), PLAIN)
    assert trial._plain and max(trial._plain) == PLAIN


def test_an_output_alone_has_nothing_to_wait_for() -> None:
    (output,) = on_trial(1)
    assert not output.decide(4).length and not output.is_settling


def test_a_probe_is_no_sample_of_proposals() -> None:
    """It is paid for by itself, and dearer than the proposals of a group that proposes."""
    (output,) = outputs_that_propose(1)
    trial = output._group.trial
    output._set_probe(is_probe=True)
    end(output, Decision(1, is_probe=True), PROPOSING)
    assert PROPOSING not in trial._elapsed
