"""What the target is asked to propose, and what of it the next round takes."""

from coordinator.adaptive import Decision
from coordinator.outputs.own_proposals import OwnProposals, beginning
from coordinator.outputs.round import Round
from coordinator.peers import NO_ORDER, OwnOrder
from specpair.options import Rule
from specpair.v1.proposal_pb2 import Proposal


def test_an_order_is_what_was_decided() -> None:
    begun = Round(step=1, rule=Rule.TOKEN)
    assert begun.order == NO_ORDER
    OwnProposals().order(begun, Decision(3, min_confidence=0.25))
    assert begun.order == OwnOrder(3, 0.25)


def test_the_beginning_of_a_tree_is_its_first_levels() -> None:
    tree = Proposal(token_ids=[4, 5, 6, 7], parent_indices=[-1, 0, -1, 1])
    cut = beginning(tree, 2)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([4, 5, 6], [-1, 0, -1])
    assert list(beginning(Proposal(token_ids=[4, 5, 6]), 2).token_ids) == [4, 5]
