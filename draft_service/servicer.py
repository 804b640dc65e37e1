"""DraftService over gRPC: decodes requests, calls the drafter, encodes responses."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import grpc
import grpc.aio

from draft_service.beam_calls import grow_beams
from draft_service.deliveries import Deliveries, encode
from draft_service.host import DraftHost
from draft_service.proposal import AheadOrder, Drafted, ProposeCall
from draft_service.target_tokenizer import read_target_tokenizer
from specpair.errors import SpecpairError
from specpair.options import check_count, check_range
from specpair.rpc.messages import body_of, check_sequence_id, drafter_to_proto, translation_to_proto
from specpair.server.pushes import Pushes
from specpair.server.streams import serve_calls
from specpair.speculation.randomness import LAST_STEP
from specpair.tracing import continued, span, trace_context_of
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceServicer

logger = logging.getLogger(__name__)


class DraftServicer(DraftServiceServicer):
    """The hot call, unary and as a stream."""

    def __init__(self, host: DraftHost):
        self._host = host

    async def ProposeTokens(
        self, request: pb.ProposeTokensRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeTokensResponse:
        with continued(trace_context_of(context.invocation_metadata())):
            return await self._propose(request)

    async def TakeTargetTokenizer(
        self, request_iterator: AsyncIterator[pb.TakeTargetTokenizerRequest], context: grpc.aio.ServicerContext
    ) -> pb.TakeTargetTokenizerResponse:
        translation = await self._host.take_target_tokenizer(await read_target_tokenizer(request_iterator))
        return pb.TakeTargetTokenizerResponse(
            instance_id=self._host.instance_id, translation=translation_to_proto(translation)
        )

    async def StreamProposals(
        self, request_iterator: AsyncIterator[pb.StreamProposalsRequest], context: grpc.aio.ServicerContext
    ) -> None:
        pushes = Pushes("ahead_blocks")
        deliveries = Deliveries(pushes)

        async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
            return await self._propose(request, deliveries)

        def take(call: pb.ProposalCall) -> bool:
            return call.request.has_proposal and self._take(call.request, deliveries)

        await serve_calls(request_iterator, context, propose, pb.StreamProposalsResponse, pushes, take)

    async def GrowBeams(self, request: pb.GrowBeamsRequest, context: grpc.aio.ServicerContext) -> pb.GrowBeamsResponse:
        described = {"sequence": request.sequence_id, "step": request.step, "beams": request.num_beams}
        with continued(trace_context_of(context.invocation_metadata())), span("grow beams", "server", **described):
            return await grow_beams(self._host, request)

    def _take(self, request: pb.ProposeTokensRequest, deliveries: Deliveries) -> bool:
        """Takes a call whose caller has its proposal and needs no answer, and goes on working ahead at once, or as soon
        as the prompt is read. What is wrong with it is said to the next call."""
        try:
            call, order = self._call(request), self._order(request)
            if self._host.is_reading(call.sequence_id):
                kept = copy_of(request)  # the request would keep its whole message
                self._host.when_read(call.sequence_id, lambda: self._take(kept, deliveries))
                return True
            with span("propose", "server", **described(request)) as traced:
                drafted = self._host.take(call, body_of(unchanging(request)))
                if drafted is not None:
                    traced.set(proposed=len(drafted.tokens), batch_sequences=drafted.batch_size)
                    if order is not None:
                        self._host.work_ahead(call, drafted, order, deliveries.deliver)
        except SpecpairError as error:
            logger.debug("what became of a proposal was not taken: %s", error.message)
        return True

    async def _propose(
        self, request: pb.ProposeTokensRequest, deliveries: Deliveries | None = None
    ) -> pb.ProposeTokensResponse:
        with span("propose", "server", **described(request)) as traced:
            response = await self._answer(request, deliveries)
            traced.set(
                proposed=len(response.proposal.token_ids),
                batch_sequences=response.batch_size,
                queue_time_us=response.queue_time_us,
                compute_time_us=response.compute_time_us,
            )
            return response

    async def _answer(
        self, request: pb.ProposeTokensRequest, deliveries: Deliveries | None
    ) -> pb.ProposeTokensResponse:
        call = self._call(request)
        order = self._order(request) if deliveries is not None else None
        call = replace(call, looks=order is not None)
        drafted = await self._host.propose(call, body_of(unchanging(request)))
        if order is not None and deliveries is not None:
            self._work_ahead(call, drafted, order, deliveries)
        return pb.ProposeTokensResponse(
            instance_id=self._host.instance_id,
            step=request.step,
            proposal=None if request.has_proposal else await encode(drafted),
            queue_time_us=round(drafted.queue_time * 1e6),
            compute_time_us=round(drafted.compute_time * 1e6),
            batch_size=drafted.batch_size,
            drafter=drafter_to_proto(drafted.drafter),
            rollback_time_ns=round(drafted.rollback_time * 1e9),
            was_prepared=drafted.was_prepared,
            guessed_token_count=drafted.guess_count,
            accepted_guess_count=drafted.accepted_guess_count,
            pass_count=drafted.pass_count,
        )

    def _work_ahead(self, call: ProposeCall, drafted: Drafted, order: AheadOrder, deliveries: Deliveries) -> None:
        """Prepares the next step: soon if nobody waits for the answer, else once that is on its way. Never in the call
        itself, which must not fail for what fails there."""
        loop = asyncio.get_running_loop()
        begin = partial(self._host.work_ahead, call, drafted, order, deliveries.deliver)
        if call.has_proposal:
            loop.call_soon(begin)
        else:
            loop.call_later(0.0, begin)

    def _call(self, request: pb.ProposeTokensRequest) -> ProposeCall:
        check_sequence_id("sequence_id", request.sequence_id)
        limit = self._host.sequences.limits.max_model_len
        check_count("appended_token_ids", len(request.appended_token_ids), limit)
        return ProposeCall(
            sequence_id=request.sequence_id,
            step=request.step,
            base_length=request.base_length,
            appended=list(request.appended_token_ids),
            count=request.num_speculative_tokens,
            min_confidence=request.min_confidence,
            max_tree_tokens=request.max_tree_tokens,
            has_proposal=request.has_proposal,
            is_plain=request.is_plain,
        )

    def _order(self, request: pb.ProposeTokensRequest) -> AheadOrder | None:
        """What to prepare for the next step; None after the last one, whose draws could not be keyed: they would fail
        in a pass that others share."""
        if not request.HasField("work_ahead") or request.step == LAST_STEP:
            return None
        wanted = request.work_ahead
        most = self._host.max_num_speculative_tokens
        check_range("work_ahead.max_outcomes", wanted.max_outcomes, 1, 2**32 - 1)
        check_range("work_ahead.num_speculative_tokens", wanted.num_speculative_tokens, 1, most)
        check_range("work_ahead.min_confidence", wanted.min_confidence, 0.0, 1.0)
        return AheadOrder(
            max_outcomes=wanted.max_outcomes,
            count=wanted.num_speculative_tokens,
            min_confidence=wanted.min_confidence,
            max_length=min(wanted.max_length, self._host.sequences.limits.max_model_len),
            withholds=wanted.withholds_distributions,
        )


def described(request: pb.ProposeTokensRequest) -> dict[str, str | int]:
    """What a trace says of a call."""
    return {"sequence": request.sequence_id, "step": request.step, "k": request.num_speculative_tokens}


def unchanging(request: pb.ProposeTokensRequest) -> pb.ProposeTokensRequest:
    """What identifies a repeated call: not what is to be prepared, nor what the caller has already."""
    body = copy_of(request)
    body.ClearField("work_ahead")
    body.ClearField("has_proposal")
    return body


def copy_of(request: pb.ProposeTokensRequest) -> pb.ProposeTokensRequest:
    copy = pb.ProposeTokensRequest()
    copy.CopyFrom(request)
    return copy
