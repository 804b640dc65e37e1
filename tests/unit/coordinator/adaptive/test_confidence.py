"""Where greedy proposals end for want of confidence: learned from those that did."""

import random
from statistics import fmean

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, OutputLength
from coordinator.adaptive.confidence import FIRST_POWER, MOST_POWER, Confidence
from specpair.options import Drafter, Rule
from tests.unit.coordinator.adaptive.test_group import CHEAP_ROWS, controller_of

PRICE, ASKED = 0.2, 16


def survival_at_the_end(confidence: Confidence, power: float, count: int) -> float:
    """How often all tokens of a proposal that ended early are accepted, for a draft whose probability of a token is
    this power of its acceptance chance: the last 500 of so many proposals."""
    draw, survived = random.Random(1), list[bool]()
    for _ in range(count):
        limit, together, drafted, accepted, lives = confidence.limit(PRICE), 1.0, 0, 0, True
        while drafted < ASKED and together >= limit:
            chance = draw.betavariate(4.0, 1.5)
            together *= chance**power
            lives &= draw.random() < chance
            drafted, accepted = drafted + 1, accepted + lives
        confidence.add(ASKED, drafted, accepted, PRICE)
        if drafted < ASKED:
            survived.append(accepted == drafted)
    return fmean(survived[-500:])


@pytest.mark.parametrize("power", [1.2, 2.0, 4.0, 8.0])
def test_proposals_end_where_a_token_is_no_longer_worth_its_price(power: float) -> None:
    """Whether a draft is modest or not."""
    assert survival_at_the_end(Confidence(), power, 3000) == pytest.approx(PRICE, abs=0.06)


def test_while_proposals_do_not_end_early_what_was_learned_is_forgotten() -> None:
    confidence = Confidence()
    for _ in range(2000):
        confidence.add(ASKED, 2, 2, PRICE)
    assert confidence.limit(PRICE) == pytest.approx(PRICE**MOST_POWER)
    for _ in range(8000):
        confidence.add(ASKED, ASKED, 0, PRICE)
    assert confidence.limit(PRICE) == pytest.approx(PRICE**FIRST_POWER, rel=0.05)


def test_a_draft_that_is_sure_of_what_is_rejected_is_believed_at_the_most() -> None:
    confidence = Confidence()
    for _ in range(2000):
        confidence.add(ASKED, 2, 0, PRICE)
    assert confidence.limit(PRICE) == pytest.approx(PRICE)


def run(output: OutputLength, decision: Decision, most: int) -> None:
    """A round whose draft proposes at most so many tokens, all of which are accepted."""
    asked, waited = decision.length, 3.0 if decision.length else 0.0
    drafted = min(asked, most)
    output.add(SimulatedRound(asked, drafted, drafted, 11.0 + waited, 11.0 + waited, waited, 1.0, 10.0, 1 + asked))


def greedy(drafter: Drafter = Drafter.MODEL, tree_tokens: int = 0) -> OutputLength:
    return controller_of(CHEAP_ROWS).enter(drafter, Rule.COUPLED, 0.0, None, tree_tokens)


def after_rounds(output: OutputLength, most: int) -> float:
    """The limit of an output whose draft ends its proposals after so many tokens, if it is asked for more."""
    decisions = [output.decide(8)]
    for _ in range(120):
        run(output, decisions[-1], most)
        decisions.append(output.decide(8))
    assert any(decision.length > 2 for decision in decisions)
    assert all(decision.min_confidence > 0.0 for decision in decisions if decision.length and not decision.is_probe)
    return output._group.confidence.limit(PRICE)


BEFORE = PRICE**FIRST_POWER


def test_an_output_learns_that_its_draft_is_modest() -> None:
    output = greedy()
    learned = after_rounds(output, most=2)
    assert learned < 0.1 * BEFORE
    for _ in range(200):
        output.add(SimulatedRound(0, 0, 0, 11.0, 11.0, 0.0, 0.0, 10.0, 1))
    assert output._group.confidence.limit(PRICE) == learned, "rounds without a proposal say nothing"
    assert learned < after_rounds(output, most=8) < BEFORE, "those that do not end early draw it back"


def test_proposals_that_may_end_for_other_reasons_say_nothing() -> None:
    """Of n-grams that know no more, of a head that is not deeper, of a tree that has another shape."""
    assert after_rounds(greedy(Drafter.NGRAM), most=2) == BEFORE
    assert after_rounds(greedy(Drafter.MTP), most=2) == BEFORE
    assert after_rounds(greedy(tree_tokens=4), most=2) == BEFORE


def test_what_is_learned_belongs_to_the_decision_in_force() -> None:
    """While the draft works ahead a later one has been made already."""
    output = greedy()
    after_rounds(output, most=8)
    output.decide(8)
    output.use(Decision(4, min_confidence=0.5, price=1.0))
    before = output._group.confidence.limit(PRICE)
    run(output, Decision(4), most=2)
    drawn_back = output._group.confidence.limit(PRICE)
    assert drawn_back == pytest.approx(before), "at a price of 1 what is accepted was worth no more"


def test_sampled_proposals_do_not_end_early() -> None:
    output = controller_of(CHEAP_ROWS).enter(Drafter.MODEL, Rule.COUPLED, 1.0, None)
    for _ in range(120):
        decision = output.decide(8)
        run(output, decision, 2)
        assert decision.min_confidence == 0.0
    assert output._group.confidence.limit(PRICE) == BEFORE
