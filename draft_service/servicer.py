"""DraftService over gRPC: decodes requests, calls the drafter, encodes responses."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import torch

from draft_service.host import DraftHost
from draft_service.proposal import Drafted, ProposeCall
from specpair.options import check_count
from specpair.rpc.messages import body_of, check_sequence_id, drafter_to_proto
from specpair.server.streams import serve_calls
from specpair.tracing import span
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import proposal_pb2
from specpair.v1.draft_service_pb2_grpc import DraftServiceServicer
from specpair.wire.distributions import encode_counts, encode_dense


class DraftServicer(DraftServiceServicer):
    """The hot call, unary and as a stream."""

    def __init__(self, host: DraftHost):
        self._host = host

    async def ProposeTokens(
        self, request: pb.ProposeTokensRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeTokensResponse:
        return await self._propose(request)

    async def StreamProposals(
        self, request_iterator: AsyncIterator[pb.StreamProposalsRequest], context: grpc.aio.ServicerContext
    ) -> None:
        await serve_calls(request_iterator, context, self._propose, pb.StreamProposalsResponse)

    async def _propose(self, request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        count = request.num_speculative_tokens
        with span("propose", "server", sequence=request.sequence_id, step=request.step, k=count) as traced:
            response = await self._answer(request)
            traced.set(
                proposed=len(response.proposal.token_ids),
                batch_sequences=response.batch_size,
                queue_time_us=response.queue_time_us,
                compute_time_us=response.compute_time_us,
            )
            return response

    async def _answer(self, request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        check_sequence_id("sequence_id", request.sequence_id)
        limit = self._host.sequences.limits.max_model_len
        check_count("appended_token_ids", len(request.appended_token_ids), limit)
        call = ProposeCall(
            sequence_id=request.sequence_id,
            step=request.step,
            base_length=request.base_length,
            appended=list(request.appended_token_ids),
            count=request.num_speculative_tokens,
            min_confidence=request.min_confidence,
        )
        drafted = await self._host.propose(call, body_of(request))
        return pb.ProposeTokensResponse(
            instance_id=self._host.instance_id,
            step=request.step,
            proposal=await encode(drafted),
            queue_time_us=round(drafted.queue_time * 1e6),
            compute_time_us=round(drafted.compute_time * 1e6),
            batch_size=drafted.batch_size,
            drafter=drafter_to_proto(drafted.drafter),
            rollback_time_ns=round(drafted.rollback_time * 1e9),
        )


async def encode(drafted: Drafted) -> proposal_pb2.Proposal:
    """The proposal as a message. Dense ones can be megabytes and are encoded in a thread."""
    if drafted.dense:
        distributions = await asyncio.to_thread(lambda: encode_dense(torch.stack(drafted.dense)))
    elif drafted.counts:
        distributions = encode_counts(drafted.counts)
    else:
        distributions = None
    return proposal_pb2.Proposal(token_ids=drafted.tokens, distributions=distributions)
