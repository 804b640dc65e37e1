"""What the draft is asked to prepare, and when it is asked for nothing."""

from collections import defaultdict

import pytest

from coordinator.adaptive import Decision
from coordinator.adaptive.ahead_trial import AheadTrial
from coordinator.adaptive.load import Load
from coordinator.outputs.preparations import Preparations
from coordinator.outputs.round import Round
from specpair.options import Drafter, Rule, WorkAhead
from tests.unit.coordinator.pair_bench import PROMPT, request

BEGUN = Round(step=1, rule=Rule.TOKEN, asked_count=4)


def preparations(mode: WorkAhead = WorkAhead.ON) -> Preparations:
    return Preparations(request(work_ahead=mode), defaultdict(AheadTrial), Load())


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


@pytest.mark.parametrize("takes_forced_text", [False, True])
def test_times_do_not_decide_where_forced_text_is_taken(takes_forced_text: bool) -> None:
    trial = AheadTrial()
    trial.is_on = True
    for mode in (WorkAhead.AUTO, WorkAhead.ON):
        asked = request(work_ahead=mode, takes_forced_text=takes_forced_text)
        prepared = Preparations(asked, defaultdict(lambda: trial), Load()).after(
            BEGUN, len(PROMPT), Decision(4), Drafter.MODEL
        )
        assert (prepared is None) == (takes_forced_text and mode is WorkAhead.AUTO)
