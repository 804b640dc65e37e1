"""Where greedy proposals end for want of confidence: learned from those that did."""

import random
from statistics import fmean

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive import Decision, OutputLength
from coordinator.adaptive.confidence import FIRST_POWER, MOST_POWER, Confidence
from tests.unit.coordinator.adaptive.test_group import CHEAP_ROWS, controller_of, entered

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


def test_a_draft_that_never_ends_early_is_asked_to_from_time_to_time() -> None:
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


def test_no_proposal_says_nothing() -> None:
    confidence = Confidence()
    confidence.add(0, 0, 0, PRICE)
    confidence.add(ASKED, 0, 0, PRICE)
    assert confidence.limit(PRICE) == PRICE**FIRST_POWER


class TreeRound(SimulatedRound):
    """A round whose proposal is a tree."""

    @property
    def depth(self) -> int:
        return max(self.drafted_count - 1, 0)


def run(output: OutputLength, decision: Decision, most: int, round_type: type[SimulatedRound] = SimulatedRound) -> None:
    """A round whose draft proposes at most so many tokens, all of which are accepted."""
    asked, waited = decision.length, 3.0 if decision.length else 0.0
    drafted = min(asked, most)
    output.add(round_type(asked, drafted, drafted, 11.0 + waited, 11.0 + waited, waited, 1.0, 10.0, 1 + asked))


def after_rounds(most: int, round_type: type[SimulatedRound] = SimulatedRound) -> float:
    """The limit of an output whose draft ends its proposals after so many tokens, if it is asked for more."""
    [output] = entered(controller_of(CHEAP_ROWS), 1)
    decisions = [output.decide(8)]
    for _ in range(120):
        run(output, decisions[-1], most, round_type)
        decisions.append(output.decide(8))
    assert any(decision.length > 2 for decision in decisions)
    assert all(decision.min_confidence > 0.0 for decision in decisions if decision.length and not decision.is_probe)
    return output._group.confidence.limit(PRICE)


def test_an_output_learns_that_its_draft_is_modest() -> None:
    before = PRICE**FIRST_POWER
    assert after_rounds(most=2) < 0.1 * before
    assert after_rounds(most=8) == pytest.approx(before), "none has ended early"


def test_trees_say_nothing_of_where_a_chain_should_end() -> None:
    assert after_rounds(2, TreeRound) == PRICE**FIRST_POWER


def test_sampled_proposals_do_not_end_early() -> None:
    [output] = entered(controller_of(CHEAP_ROWS), 1, temperature=1.0)
    for _ in range(120):
        decision = output.decide(8)
        run(output, decision, 2)
        assert decision.min_confidence == 0.0
    assert output._group.confidence.limit(PRICE) == PRICE**FIRST_POWER
