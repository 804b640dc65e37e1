"""What is wrong with a proposal is seen before the target is asked."""

import pytest

from coordinator.outputs.proposal_problem import problem_of
from coordinator.peers import CallTimes, Proposed
from specpair.v1.proposal_pb2 import Proposal

TIMES = CallTimes(started_at=0.0, elapsed=0.004, queue=0.0, compute=0.003)


def proposed(count: int, parents: tuple[int, ...] = ()) -> Proposed:
    return Proposed(proposal=Proposal(token_ids=range(count), parent_indices=parents), times=TIMES)


@pytest.mark.parametrize(
    ("answer", "tree_tokens"), [(proposed(4), 0), (proposed(3, (-1, -1, 0)), 6), (proposed(6, (-1,) * 6), 6)]
)
def test_what_was_asked_for(answer: Proposed, tree_tokens: int) -> None:
    assert problem_of(answer, 4, tree_tokens) is None


@pytest.mark.parametrize(
    ("answer", "tree_tokens", "field"),
    [
        (proposed(5), 0, "proposal"),
        (proposed(7, (-1,) * 7), 6, "proposal"),
        (proposed(2, (-1, -1)), 0, "proposal.parent_indices"),
        (proposed(5), 6, "proposal"),
        (proposed(6, (-1, 0, 1, 2, 3, -1)), 6, "proposal"),
    ],
)
def test_what_was_not(answer: Proposed, tree_tokens: int, field: str) -> None:
    found = problem_of(answer, 4, tree_tokens)
    assert found is not None and found.metadata["field"] == field
