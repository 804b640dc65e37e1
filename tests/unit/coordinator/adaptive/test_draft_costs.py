"""What a proposal takes is learned: its steps, and the rest of the call."""

import random

import pytest

from coordinator.adaptive.draft_costs import DraftCosts
from tests.unit.coordinator.adaptive.test_estimates import proposing_round


def test_what_a_token_adds_to_the_calls_is_part_of_a_step_where_no_output_waits() -> None:
    """Messages grow with a proposal. With several outputs a round also waits for others, so that it shows nothing."""
    costs, beside_others, draw = DraftCosts(), DraftCosts(), random.Random(0)
    for _ in range(1200):
        asked = draw.randint(1, 6)
        outcome = proposing_round(asked, rest=20.0 + 2.0 * asked, step=3.0, start=8.0)
        costs.add(outcome, load=1, proposing=1)
        beside_others.add(outcome._replace(elapsed=outcome.elapsed + draw.uniform(0.0, 80.0)), load=4, proposing=4)
    assert costs.step == pytest.approx(5.0, rel=0.1)
    assert beside_others.step == pytest.approx(3.0, rel=0.1)


def test_the_start_of_a_draft_call_is_no_part_of_its_steps() -> None:
    costs, draw = DraftCosts(), random.Random(0)
    for _ in range(100):
        costs.add(proposing_round(draw.randint(1, 6), 20.0, step=3.0, start=8.0), load=1, proposing=1)
    assert costs.step == pytest.approx(3.0, rel=0.1)
    assert costs.rest == pytest.approx(10.0, rel=0.2)


def test_what_the_draft_published_is_believed_while_blocks_are_of_one_length() -> None:
    told, untold = DraftCosts(), DraftCosts()
    told.assume(rest=5.0, step=3.0)
    assert (told.rest, told.step) == (5.0, 3.0)
    for _ in range(50):
        for each in (told, untold):
            each.add(proposing_round(1, 20.0, step=3.0, start=8.0), load=1, proposing=1)
    assert told.step == pytest.approx(3.0), "one length tells nothing of a step"
    assert untold.step == pytest.approx(11.0), "then a token takes what the whole call takes"


def test_proposals_that_were_prepared_do_not_hide_what_those_after_them_take() -> None:
    """A prepared proposal is not waited for; when working ahead ends, each is again."""
    costs = DraftCosts()
    for _ in range(300):
        costs.add(
            proposing_round(4, 20.0, step=3.0)._replace(draft_elapsed=0.0, draft_compute=0.0), load=1, proposing=1
        )
    assert (costs.rest, costs.step) == (0.0, 0.0)
    for _ in range(200):
        costs.add(proposing_round(4, 20.0, step=3.0), load=1, proposing=1)
    assert costs.step == pytest.approx(3.0, rel=0.1) and 1.0 < costs.rest < 5.0


def test_a_stall_among_prepared_proposals_is_cut_to_the_usual_wait() -> None:
    costs = DraftCosts()
    for i in range(200):
        made = proposing_round(4, 20.0, step=3.0)
        waited = 10_000.0 if i == 150 else 0.0 if i % 2 else made.draft_elapsed
        costs.add(made._replace(draft_elapsed=waited, draft_compute=min(waited, 12.0)), load=1, proposing=1)
    assert costs.rest < 6.0


def test_a_short_proposal_beside_a_long_one_says_nothing_of_a_step() -> None:
    """It takes as long, since all are drawn in the same steps."""
    costs, draw = DraftCosts(), random.Random(0)
    for _ in range(300):
        longest = draw.randint(8, 16)
        made = proposing_round(longest, 20.0, step=3.0)
        for asked in (longest, draw.randint(1, 7), draw.randint(1, 7), longest):
            costs.add(made._replace(asked=asked, drafted_count=asked, accepted_count=0), load=4, proposing=4)
    assert costs.step == pytest.approx(3.0, rel=0.1)


def test_beside_a_longest_that_never_changes_a_step_is_what_its_tokens_take() -> None:
    """Not what those of the short ones seem to take."""
    costs, made = DraftCosts(), proposing_round(16, 20.0, step=3.0, start=8.0)
    for _ in range(100):
        for asked in (16, 3, 4, 5):
            costs.add(made._replace(asked=asked, drafted_count=asked, accepted_count=0), load=4, proposing=4)
    assert costs.step == pytest.approx(3.5)


def test_who_was_asked_for_many_tokens_and_stopped_early_says_nothing_of_a_step() -> None:
    costs, draw = DraftCosts(), random.Random(0)
    for _ in range(300):
        made = proposing_round(draw.randint(8, 16), 20.0, step=3.0)
        for drafted in (made.drafted_count, draw.randint(0, 7), draw.randint(0, 7), made.drafted_count):
            costs.add(made._replace(asked=16, drafted_count=drafted, accepted_count=0), load=4, proposing=4)
    assert costs.step == pytest.approx(3.0, rel=0.1)


def test_proposals_without_a_token_say_nothing_of_a_step() -> None:
    costs, made = DraftCosts(), proposing_round(4, 20.0, step=3.0)
    costs.add(made._replace(drafted_count=0, accepted_count=0), load=1, proposing=1)
    assert costs.step == 0.0 and costs.rest > 0.0


def test_where_few_count_they_are_still_compared_with_their_neighbours() -> None:
    """A machine that is slow for a while, in which proposals are shorter: all of them together would say that a token
    costs nothing."""
    costs, draw = DraftCosts(), random.Random(0)
    for turn in range(600):
        is_slow = turn % 60 < 30
        longest = draw.randint(6, 10) if is_slow else draw.randint(14, 18)
        made = proposing_round(longest, 20.0, step=6.0 if is_slow else 3.0)
        for asked in (longest, *[2] * 15):
            costs.add(made._replace(asked=asked, drafted_count=asked, accepted_count=0), load=16, proposing=16)
    assert costs.step > 2.0


def test_what_was_measured_is_forgotten_when_a_proposal_is_far_quicker() -> None:
    """Anything may be late, nothing is early: then what was measured were stalls. What was published stays."""
    costs = DraftCosts()
    costs.assume(rest=5.0, step=3.0)
    for _ in range(2):
        costs.add(proposing_round(1, 20.0, step=3.0)._replace(draft_elapsed=400.0), load=1, proposing=1)
    costs.doubt(110.0, 1)
    assert costs.count == 2, "not so much quicker"
    costs.doubt(0.0, 1)
    assert costs.count == 2, "what was prepared was not waited for"
    costs.doubt(90.0, 1)
    assert costs.count == 0
    costs.assume(rest=5.0, step=3.0)
    assert (costs.rest, costs.step) == (5.0, 3.0)


def test_of_a_draft_that_is_slow_at_times_the_slow_calls_count() -> None:
    """A quick one among them makes the slow ones forgotten until the next."""
    costs = DraftCosts()
    costs.assume(rest=5.0, step=3.0)
    slow, quick = (proposing_round(1, 20.0, step=3.0)._replace(draft_elapsed=elapsed) for elapsed in (400.0, 10.0))
    for outcome in (slow, slow):
        costs.add(outcome, load=1, proposing=1)
    costs.doubt(10.0, 1)
    costs.add(quick, load=1, proposing=1)
    assert costs.rest < 20.0
    costs.add(slow, load=1, proposing=1)
    assert costs.rest > 300.0
    for outcome in 20 * [quick]:
        costs.doubt(10.0, 1)
        costs.add(outcome, load=1, proposing=1)
    costs.add(slow, load=1, proposing=1)
    assert costs.rest < 40.0, "a single stall"
