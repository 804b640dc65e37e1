"""Prepared and answered proposals as messages."""

import asyncio

import torch

from draft_service.proposal import Drafted, PreparedBlock
from specpair.server.pushes import Pushes
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import proposal_pb2
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import encode_dense
from specpair.wire.trees import encode_tree


class Deliveries:
    """Sends prepared proposals on one stream."""

    def __init__(self, pushes: Pushes):
        self._pushes = pushes
        self._encoding: dict[asyncio.Task[None], int] = {}
        """With the bytes that each will have pushed, about."""

    def deliver(self, block: PreparedBlock) -> None:
        """Sends a block, dense ones once they are encoded. It is not even encoded if there is no room for it."""
        if block.withholds and block.drafted.has_rows:
            self._push(block, without_rows(block.drafted))
            return
        size = block.drafted.byte_count
        if not self._pushes.has_room(sum(self._encoding.values()) + size):
            return
        if block.drafted.dense:
            task = asyncio.get_running_loop().create_task(self._encode(block))
            self._encoding[task] = size
            task.add_done_callback(self._encoding.pop)
        else:
            self._push(block, sparse(block.drafted))

    async def _encode(self, block: PreparedBlock) -> None:
        self._push(block, await encode(block.drafted))

    def _push(self, block: PreparedBlock, proposal: proposal_pb2.Proposal) -> None:
        message = pb.AheadBlock(
            sequence_id=block.sequence_id,
            step=block.step,
            base_length=block.base_length,
            accepted_count=block.accepted_count,
            next_token_id=block.next_token_id,
            proposal=proposal,
            compute_time_us=round(block.drafted.compute_time * 1e6),
        )
        self._pushes.push(message, block.is_current)


async def encode(drafted: Drafted) -> proposal_pb2.Proposal:
    """The proposal as a message. Dense ones can be megabytes and are encoded in a thread."""
    if not drafted.dense:
        return sparse(drafted)
    distributions = await asyncio.to_thread(lambda: encode_dense(torch.stack(drafted.dense)))
    return proposal_pb2.Proposal(token_ids=drafted.tokens, distributions=distributions)


def without_rows(drafted: Drafted) -> proposal_pb2.Proposal:
    """The tokens of a proposal as a message. Its rows are sent if it is used."""
    withheld = proposal_pb2.Distributions(withheld=proposal_pb2.WithheldDistributions())
    return proposal_pb2.Proposal(token_ids=drafted.tokens, distributions=withheld)


def sparse(drafted: Drafted) -> proposal_pb2.Proposal:
    """A proposal without dense rows as a message."""
    if drafted.tree is not None:
        return encode_tree(drafted.tree, drafted.counts, drafted.draws)
    distributions = encode_counts(drafted.counts) if drafted.counts else None
    return proposal_pb2.Proposal(token_ids=drafted.tokens, distributions=distributions)
