"""The message of a proposal that the target made."""

from specpair.v1 import proposal_pb2
from target_service.own_proposal import OwnProposal


def encode_proposal(own: OwnProposal) -> proposal_pb2.Proposal:
    """What the target proposes, as the next call has to repeat it."""
    kept = None
    if own.rows is not None:
        kept = proposal_pb2.Distributions(kept=proposal_pb2.KeptDistributions(step=own.step))
    return proposal_pb2.Proposal(token_ids=own.token_ids, distributions=kept, parent_indices=own.parents)
