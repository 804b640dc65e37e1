"""How long probes are: long enough to show that later tokens have become better, where these cost others nothing."""

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import LengthController, OutputLength, output_length
from coordinator.adaptive.probe_budget import MOST_JOINING
from coordinator.adaptive.probe_price import PROBE_LENGTH
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

LONGEST, ROUNDS = 8, 100


def outputs_of(*, row: float, step: float, count: int = 1) -> list[OutputLength]:
    """Outputs that have not begun. A pass takes 10 seconds and `row` for each further token, a step of the draft
    `step`."""
    controller = LengthController()
    costs = (PassCost(token_count=1, seconds=10.0), PassCost(token_count=64, seconds=10.0 + 63 * row))
    controller.publish(costs, (PassCost(token_count=1, seconds=step),))
    return [controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None) for _ in range(count)]


def end(output: OutputLength, asked: int, accepted: int) -> None:
    """Ends a round. The draft takes 13 seconds besides its steps."""
    waited = (13.0 + 0.1 * asked) if asked else 0.0
    verify = 10.0 + 0.1 * asked
    elapsed = 0.5 + verify + waited
    output.add(SimulatedRound(asked, asked, accepted, elapsed, elapsed, waited, waited, verify, asked + 1))


def with_bad_second_tokens(output: OutputLength) -> OutputLength:
    """It has seen first tokens that were right, and second ones that were not."""
    for asked in (0, *[4] * 12):
        output.decide(0)
        end(output, asked, min(asked, 1))
    return output


def first_length(output: OutputLength, rounds: int) -> tuple[int, int]:
    """Runs rounds in which all proposed tokens are right, until a proposal is no probe: its length (0 if there is
    none), and that of the probes before it."""
    probed = 0
    for _ in range(rounds):
        decision = output.decide(LONGEST)
        if decision.length and not decision.is_probe:
            return decision.length, probed
        probed = decision.length or probed
        end(output, decision.length, decision.length)
    return 0, probed


@pytest.mark.parametrize(("longest", "is_found"), [(PROBE_LENGTH, True), (1, False)])
def test_probes_find_that_later_tokens_have_become_better(
    monkeypatch: pytest.MonkeyPatch, longest: int, is_found: bool
) -> None:
    """One token alone does not pay here, and that one is accepted says little of those after it."""
    monkeypatch.setattr(output_length, "PROBE_LENGTH", longest)
    output = with_bad_second_tokens(*outputs_of(row=0.1, step=0.1))
    length, probed = first_length(output, rounds=ROUNDS)
    assert probed == longest
    assert (length > 1) == is_found


def test_where_tokens_are_dear_a_probe_has_few() -> None:
    """A row of the target takes 0.4 of a pass, and so does a step of the draft, so that even the best proposes less."""
    output = with_bad_second_tokens(*outputs_of(row=4.0, step=4.0))
    assert 1 <= output._probe_length < PROBE_LENGTH


@pytest.mark.parametrize(("count", "length"), [(MOST_JOINING, PROBE_LENGTH), (MOST_JOINING + 1, 1)])
def test_beside_outputs_that_do_not_probe_a_probe_has_one_token(count: int, length: int) -> None:
    outputs = outputs_of(row=0.1, step=0.1, count=count)
    for output in outputs:
        end(output, output.decide(0).length, 0)
    outputs[0].decide(LONGEST)
    assert outputs[0]._probe_length == length


def test_all_its_tokens_are_rows_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of other groups may wait for them."""
    rows = set[float]()

    def note(*_args: object, **named: float) -> float:
        rows.add(named["rows"])
        return 0.0

    outputs = [with_bad_second_tokens(output) for output in outputs_of(row=0.1, step=0.1, count=2)]
    monkeypatch.setattr(output_length, "price", note)
    for _ in range(ROUNDS):
        decisions = [output.decide(LONGEST) for output in outputs]
        for output, decision in zip(outputs, decisions, strict=True):
            end(output, decision.length, 0)
    assert 2.0 * PROBE_LENGTH in rows and 2.0 not in rows
