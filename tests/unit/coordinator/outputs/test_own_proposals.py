"""What the target is asked to propose, and what of it the next round takes."""

from coordinator.adaptive import Decision
from coordinator.outputs.own_proposals import OwnProposals, beginning
from coordinator.outputs.round import Round
from coordinator.peers import NO_ORDER, OwnOrder
from specpair.options import Rule
from specpair.v1.proposal_pb2 import Proposal


def plain_round(step: int = 1) -> Round:
    return Round(step=step, rule=Rule.TOKEN)


def test_an_order_is_what_was_decided_and_the_next_one_is_told_in_advance() -> None:
    own, rounds = OwnProposals(), [plain_round(step) for step in (1, 2, 3)]
    assert (rounds[0].order, rounds[0].following_order) == (NO_ORDER, None)
    own.order(rounds[0], 8, Decision(3, min_confidence=0.25))
    assert rounds[0].order == rounds[0].following_order == OwnOrder(3, 0.25)
    own.order(rounds[1], 8, Decision(5))
    assert (rounds[1].order, rounds[1].following_order) == (OwnOrder(3, 0.25), OwnOrder(5))
    own.order(rounds[2], 2, Decision(4))
    assert (rounds[2].order, rounds[2].following_order) == (OwnOrder(2), OwnOrder(4)), "cut where the output ends"


def test_the_beginning_of_a_tree_is_its_first_levels() -> None:
    tree = Proposal(token_ids=[4, 5, 6, 7], parent_indices=[-1, 0, -1, 1])
    cut = beginning(tree, 2)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([4, 5, 6], [-1, 0, -1])
    assert list(beginning(Proposal(token_ids=[4, 5, 6]), 2).token_ids) == [4, 5]
