"""What is wrong with a draft's answer, before the target sees it."""

from coordinator.peers import Proposed
from specpair.errors import InvalidDistributionError, SpecpairError
from specpair.rpc.sizes import MAX_MESSAGE_BYTES

MAX_PROPOSAL_BYTES = MAX_MESSAGE_BYTES - 64 * 1024
"""Largest proposal sent to the target; the remainder is for the rest of its message."""


def problem_of(answer: Proposed, length: int, tree_tokens: int) -> SpecpairError | None:
    """What is wrong with the proposal before the target sees it; None if nothing is."""
    if answer.parents and not tree_tokens:
        return InvalidDistributionError("proposal.parent_indices", "make a tree, and no tree was asked for")
    count = max(length, tree_tokens)
    if len(answer.token_ids) > count:
        return InvalidDistributionError("proposal", f"has more than {count} tokens", limit=count)
    if answer.depth > length:
        return InvalidDistributionError("proposal", f"has more than {length} tokens on a path", limit=length)
    if (size := answer.proposal.ByteSize()) > MAX_PROPOSAL_BYTES:
        return InvalidDistributionError("proposal", f"has {size} bytes", limit=MAX_PROPOSAL_BYTES)
    return None
