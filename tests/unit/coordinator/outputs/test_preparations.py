"""What the draft is asked to prepare, and when it is asked for nothing."""

from collections import defaultdict

import pytest

from coordinator.adaptive import Decision, LengthController, RoundOutcome
from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.ahead_trial import AheadTrial
from coordinator.adaptive.load import Load
from coordinator.outputs.preparations import Preparations
from coordinator.outputs.round import Round
from coordinator.peers import CallTimes, Proposed
from specpair.options import Drafter, Rule, WorkAhead
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.pair_bench import PROMPT, request, targets_of

TARGETS = targets_of()
BEGUN = Round(step=1, rule=Rule.TOKEN, asked_count=4)


def preparations(mode: WorkAhead = WorkAhead.ON) -> Preparations:
    return Preparations(request(work_ahead=mode), defaultdict(AheadTrial), Load(), TARGETS, None)


@pytest.mark.parametrize("drafter", [None, *Drafter])
def test_only_a_drafter_that_works_ahead_is_asked_to(drafter: Drafter | None) -> None:
    prepared = preparations().after(BEGUN, len(PROMPT), Decision(4), drafter)
    assert (prepared is not None) == (drafter in (None, Drafter.MODEL))


def test_what_is_prepared_is_what_the_next_round_asks_for() -> None:
    prepared = preparations().after(BEGUN, len(PROMPT), Decision(3, min_confidence=0.25), Drafter.MODEL)
    assert prepared is not None and (prepared.count, prepared.min_confidence) == (3, 0.25)


@pytest.mark.parametrize("decision", [Decision(0), Decision(1, is_probe=True)])
def test_nothing_is_prepared_for_a_plain_round_or_a_probe(decision: Decision) -> None:
    """A probe that is decided while an earlier decision is in force is not run later either: nobody would pay."""
    assert preparations().after(BEGUN, len(PROMPT), decision, Drafter.MODEL) is None


class Heard(AheadTrial):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[float, float]] = []

    def add(self, outcome: RoundOutcome, tokens: float, load: int, before: float = 0.0) -> None:
        self.told.append((tokens, before))


def asked_round(ahead: AheadOutcome | None = None) -> Round:
    """A round with a proposal."""
    asked = Round(step=2, rule=Rule.COUPLED, asked_count=4)
    asked.take(Proposed(proposal=Proposal(token_ids=[1]), times=CallTimes(0.0, 0.0, 0.0, 0.0), ahead=ahead))
    return asked


@pytest.mark.parametrize("works_ahead", [True, False])
def test_rounds_that_were_passed_over_count_with_the_next_one(works_ahead: bool) -> None:
    """With their tokens and seconds, or not at all: else a way would seem faster than it is."""
    trial, lengths = Heard(), LengthController().enter(Drafter.MODEL, Rule.COUPLED, 0.0, 4)
    own = Preparations(request(work_ahead=WorkAhead.AUTO), defaultdict(lambda: trial), Load(), TARGETS, None)
    for _ in range(2):
        own.add(Round(step=1, rule=Rule.COUPLED, is_passed_over=True, elapsed=0.25), lengths)
    asked = asked_round(AheadOutcome.HIT if works_ahead else None)
    for _ in range(2):
        own.add(asked, lengths)
    usual = lengths.expected(4)
    assert trial.told == [(usual + 2, 0.5) if works_ahead else (usual, 0.0), (usual, 0.0)]


@pytest.mark.parametrize("mode", WorkAhead)
def test_outputs_for_which_times_do_not_decide_are_not_compared(mode: WorkAhead) -> None:
    """A client that pins the switch, to measure it for instance, does not settle it for the others."""
    trial, lengths = Heard(), LengthController().enter(Drafter.MODEL, Rule.COUPLED, 0.0, 4)
    own = Preparations(request(work_ahead=mode), defaultdict(lambda: trial), Load(), TARGETS, None)
    own.add(asked_round(), lengths)
    assert bool(trial.told) == (mode is WorkAhead.AUTO)


@pytest.mark.parametrize("takes_forced_text", [False, True])
def test_times_do_not_decide_where_forced_text_is_taken(takes_forced_text: bool) -> None:
    trial = AheadTrial()
    trial.is_on = True
    for mode in (WorkAhead.AUTO, WorkAhead.ON):
        asked = request(work_ahead=mode, takes_forced_text=takes_forced_text)
        prepared = Preparations(asked, defaultdict(lambda: trial), Load(), TARGETS, None).after(
            BEGUN, len(PROMPT), Decision(4), Drafter.MODEL
        )
        assert (prepared is None) == (takes_forced_text and mode is WorkAhead.AUTO)
