"""What the target is asked to propose, and what of it the next round takes."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive import Decision
from coordinator.outputs.own_proposals import OwnProposals, beginning
from coordinator.outputs.round import Round
from coordinator.peers import NO_ORDER, OwnOrder
from specpair.options import Rule
from specpair.v1.proposal_pb2 import Proposal


def plain_round(step: int = 1) -> Round:
    return Round(step=step, rule=Rule.TOKEN)


def test_an_order_is_what_was_decided_and_the_next_one_is_told_in_advance() -> None:
    own, rounds = OwnProposals(0.0), [plain_round(step) for step in (1, 2, 3)]
    assert (rounds[0].order, rounds[0].following_order) == (NO_ORDER, None)
    own.order(rounds[0], 8, Decision(3, min_confidence=0.25), 90)
    assert rounds[0].order == rounds[0].following_order == OwnOrder(3, 0.25)
    own.order(rounds[1], 8, Decision(5), 90)
    assert (rounds[1].order, rounds[1].following_order) == (OwnOrder(3, 0.25), OwnOrder(5))
    own.order(rounds[2], 2, Decision(4), 90)
    assert (rounds[2].order, rounds[2].following_order) == (OwnOrder(2), OwnOrder(4)), "cut where the output ends"


def test_the_first_call_has_one_round_and_those_after_it_runs() -> None:
    own, rounds = OwnProposals(0.5), [plain_round(step) for step in (1, 2, 3)]
    own.order(rounds[0], 8, Decision(3), 41)
    assert (rounds[0].order, rounds[0].following_order) == (OwnOrder(3), OwnOrder(3, run_length=5, run_seconds=0.5))
    own.order(rounds[1], 8, Decision(3), 40)
    assert rounds[1].order == rounds[0].following_order, "half of the 40 tokens, four a round"
    assert rounds[1].following_order == OwnOrder(3, run_length=3, run_seconds=0.5), "half of what it leaves at least"
    own.order(rounds[2], 8, Decision(3), 1)
    assert rounds[2].order == OwnOrder(3), "rounds have to come one by one now"


def test_probes_and_the_last_rounds_of_a_trial_come_alone() -> None:
    own, probe = OwnProposals(0.5), plain_round()
    own.order(probe, 8, Decision(1, is_probe=True), 90)
    assert probe.following_order == OwnOrder(1)
    own.order(plain_round(), 8, Decision(0), 90)
    own.order(trial := plain_round(), 8, Decision(0), 90, plain_rounds=4)
    assert trial.following_order == OwnOrder(0, run_length=4, run_seconds=0.5)
    own.order(lost := plain_round(), 8, Decision(3), 90, plain_rounds=4)
    assert lost.following_order is not None and lost.following_order.run_length > 4


def test_after_a_failure_rounds_come_alone() -> None:
    own, failed = OwnProposals(0.5), plain_round()
    own.order(failed, 8, Decision(3), 90)
    own.give_up_runs(failed)
    assert failed.following_order == OwnOrder(3)
    own.order(following := plain_round(), 8, Decision(3), 90)
    assert following.order == following.following_order == OwnOrder(3)


ORDERS = st.builds(OwnOrder, st.integers(0, 8), run_length=st.integers(1, 16), run_seconds=st.just(0.5))


@given(before=st.integers(0, 8), order=ORDERS, left=st.integers(0, 200), depth=st.integers(0, 8))
def test_an_order_that_has_room_is_not_cut(before: int, order: OwnOrder, left: int, depth: int) -> None:
    """Whatever the round before accepts: it was told in advance, and the next call must be the same."""
    depth = min(depth, before)
    if left >= order.room_after(before):
        kept = order.within(left, depth, max(left - 2, 0))
        assert kept == (order if order.run_length > 1 else order.alone)
    cut = order.within(left, depth, 8)
    last = cut.count + 1 if cut.count else 0
    assert cut.run_length == 1 or cut.most_tokens(depth) + last <= left


def test_the_beginning_of_a_tree_is_its_first_levels() -> None:
    tree = Proposal(token_ids=[4, 5, 6, 7], parent_indices=[-1, 0, -1, 1])
    cut = beginning(tree, 2)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([4, 5, 6], [-1, 0, -1])
    assert list(beginning(Proposal(token_ids=[4, 5, 6]), 2).token_ids) == [4, 5]
