"""TargetService over gRPC: decodes requests, calls the verifier, encodes responses."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from specpair.errors import NotSupportedError, SpecpairError
from specpair.options import MAX_LOGPROBS, check_count, check_range
from specpair.rpc.messages import body_of
from specpair.sequences.conditional_calls import ConditionOutcome
from specpair.sequences.held_sequence import HeldSequence, wait_for_answer
from specpair.server.streams import serve_calls
from specpair.speculation.logprobs import TokenLogprobs
from specpair.tracing import Span, continued, span, trace_context_of
from specpair.v1 import features_pb2, logprobs_pb2
from specpair.v1 import target_service_pb2 as pb
from specpair.v1.target_service_pb2_grpc import TargetServiceServicer
from specpair.wire.distributions import decode
from specpair.wire.tensors import encode_tensor
from specpair.wire.trees import decode_tree
from target_service.call_checks import check_abilities, check_call, check_form
from target_service.continuation import take_sequel
from target_service.judged_round import JudgedRound
from target_service.late_rows import LateRows, WithheldBody, withholding
from target_service.proposal_message import encode_proposal
from target_service.tree_messages import score_tree_call, score_tree_response
from target_service.verifier import Verifier
from target_service.verify_work import (
    ConditionalRequest,
    Verdict,
    VerdictCondition,
    VerifyCall,
)

logger = logging.getLogger(__name__)

MADE_ON_THE_LOOP_BYTES = 1 << 20
"""A larger (dense) proposal is decoded in a thread: it would block the event loop for milliseconds. A larger call on
condition is dropped: the ordinary one follows."""

Made = TypeVar("Made")


class TargetServicer(TargetServiceServicer):
    """The hot call, unary and as a stream."""

    def __init__(self, verifier: Verifier):
        self._verifier = verifier

    async def VerifyProposal(
        self, request: pb.VerifyProposalRequest, context: grpc.aio.ServicerContext
    ) -> pb.VerifyProposalResponse:
        with continued(trace_context_of(context.invocation_metadata())):
            return await self._verify(request)

    async def StreamVerifications(
        self, request_iterator: AsyncIterator[pb.StreamVerificationsRequest], context: grpc.aio.ServicerContext
    ) -> None:
        make_message = pb.StreamVerificationsResponse
        await serve_calls(request_iterator, context, self._verify, make_message, take=self._take)

    def _take(self, call: pb.VerificationCall) -> bool:
        """Takes a call on condition; False for any other. It is read once its condition is met, and what is wrong with
        it is said to the ordinary call. One that would hold up the event loop is dropped."""
        request = call.request
        if not request.HasField("condition") or request.run_length > 1:  # a run is refused
            return False
        if request.ByteSize() > MADE_ON_THE_LOOP_BYTES:
            self._verifier.sequences.conditional_calls.count(ConditionOutcome.FULL)
            return True
        condition, data = take_condition(request), request.SerializeToString()
        late = LateRows() if request.proposal.distributions.HasField("withheld") else None

        @functools.cache
        def read() -> pb.VerifyProposalRequest:
            again = pb.VerifyProposalRequest.FromString(data)  # the call would keep its whole message
            check_form(again, self._verifier)
            check_abilities(again, self._verifier)
            return again

        conditional = ConditionalRequest(
            sequence_id=request.sequence_id,
            step=request.step,
            size=len(data),
            body=lambda: body_of(read()) if late is None else WithheldBody(body_of(read()), late),
            decode=lambda: self._decode(read(), late),
        )
        try:
            self._verifier.begin_if(condition, conditional)
        except SpecpairError as error:
            logger.debug("a conditional call was not taken: %s", error.message)
        return True

    async def _verify(self, request: pb.VerifyProposalRequest) -> pb.VerifyProposalResponse:
        described = {
            "sequence": request.sequence_id,
            "step": request.step,
            "proposed": len(request.proposal.token_ids),
        }
        with span("verify", "server", **described) as traced:
            response = await self._answer(request, traced)
            if response.run_token_ids:
                traced.set(passes=1 + len(response.run_proposed_counts or response.run_token_ids))
            traced.set(
                accepted=response.accepted_count + sum(response.run_accepted_counts),
                tokens=response.accepted_count + 1 + len(response.run_token_ids),
                batch_tokens=response.batch_token_count,
                queue_time_us=response.queue_time_us,
                compute_time_us=response.compute_time_us,
                proposing_time_us=response.proposing_time_us,
            )
            return response

    async def _answer(self, request: pb.VerifyProposalRequest, traced: Span) -> pb.VerifyProposalResponse:
        check_call(request, self._verifier)
        verdict = await self._verdict(request, traced)
        return pb.VerifyProposalResponse(
            instance_id=self._verifier.instance_id,
            step=request.step,
            accepted_count=verdict.rounds[0].accepted_count,
            next_token_id=verdict.next_token,
            length=verdict.length,
            queue_time_us=round(verdict.queue_time * 1e6),
            compute_time_us=round(verdict.compute_time * 1e6),
            proposing_time_us=round(verdict.proposing_time * 1e6),
            batch_token_count=verdict.batch_token_count,
            logprobs=[encode_logprobs(entry) for entry in verdict.logprobs],
            target_probabilities=verdict.target_probabilities,
            draft_probabilities=verdict.draft_probabilities,
            rollback_time_ns=round(verdict.rollback_time * 1e9),
            accepted_path=verdict.path,
            features=encode_features(request.feature_layers, verdict),
            next_proposal=None if verdict.proposal is None else encode_proposal(verdict.proposal),
            forced_token_ids=verdict.forced,
            **run_fields(verdict.rounds[1:]),
            has_gone_on_plain=verdict.has_gone_on_plain,
            cached_token_count=verdict.cached_token_count,
        )

    async def ScoreTokens(
        self, request: pb.ScoreTokensRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreTokensResponse:
        if self._verifier.facts.encoder is not None:
            raise NotSupportedError("ScoreTokens: not supported for encoder-decoder models")
        limit = self._verifier.sequences.limits.max_model_len - 1
        check_count("token_ids", len(request.token_ids), limit)
        check_range("logprobs", request.logprobs, 0, MAX_LOGPROBS)
        scores = await self._verifier.score(list(request.token_ids), request.logprobs)
        # In a thread: a long prompt with many entries takes a second.
        entries = await asyncio.to_thread(lambda: [encode_logprobs(entry) for entry in scores])
        return pb.ScoreTokensResponse(instance_id=self._verifier.instance_id, logprobs=entries)

    async def ScoreTree(self, request: pb.ScoreTreeRequest, context: grpc.aio.ServicerContext) -> pb.ScoreTreeResponse:
        call = score_tree_call(request, self._verifier.sequences.limits)
        described = {"sequence": request.sequence_id, "step": request.step, "nodes": len(call.tree)}
        with continued(trace_context_of(context.invocation_metadata())), span("score tree", "server", **described):
            scores = await self._verifier.trees.score(call, body_of(request))
        return score_tree_response(self._verifier.instance_id, request.step, scores)

    async def _verdict(self, request: pb.VerifyProposalRequest, traced: Span) -> Verdict:
        sequences, sequence_id, step = self._verifier.sequences, request.sequence_id, request.step
        stops = sequences.get(sequence_id).options.sampling.stop_token_ids
        sequel = take_sequel(request, stops, self._verifier)
        before = sequences.taken(sequence_id, step)
        body = await beside_the_loop(request, lambda: body_of(request))
        held = sequences.get(sequence_id)
        is_past = held.last_step > step  # it may be since, while a large body was hashed
        taken = before if is_past else sequences.taken(sequence_id, step)
        if taken is not None and taken.body == body:
            traced.set(was_begun=True)
            sequences.note_call(held, step, sequel)
            return await wait_for_answer(taken.answer, sequence_id)
        call = await beside_the_loop(request, lambda: self._decode(request))
        while (expected := expected_rows(held, step)) is not None:
            digest = await beside_the_loop(request, lambda: body_of(withholding(request)))
            if (answer := held.answer) is None or held.last_body is not expected:
                continue
            if digest == expected.digest and call.tree is None and call.kept_step is None:
                expected.late.give(call.draft)
                held.last_body = body
                traced.set(was_begun=True)
                sequences.note_call(held, step, sequel)
                return await wait_for_answer(answer, sequence_id)
            expected.late.withdraw()
            await asyncio.wait([answer])
        return await self._verifier.verify(call, body, sequel)

    def _decode(self, request: pb.VerifyProposalRequest, late: LateRows | None = None) -> VerifyCall:
        """Distributions that were withheld come to `late`."""
        proposal, vocab_size = request.proposal, self._verifier.sequences.limits.vocab_size
        is_kept = proposal.distributions.HasField("kept")
        tree, drawn = decode_tree(proposal, vocab_size) if proposal.parent_indices else (None, None)
        sent = None if is_kept or tree is not None or late is not None else proposal.distributions
        return VerifyCall(
            sequence_id=request.sequence_id,
            step=request.step,
            base_length=request.base_length,
            appended=list(request.appended_token_ids),
            proposed=list(proposal.token_ids),
            draft=decode(sent, list(proposal.token_ids), vocab_size),
            tree=tree,
            drawn=drawn,
            include_probabilities=request.include_probabilities,
            feature_layers=tuple(request.feature_layers),
            kept_step=proposal.distributions.kept.step if is_kept else None,
            next_count=request.next_proposal_count,
            next_min_confidence=request.next_proposal_min_confidence,
            max_forced=request.max_forced_tokens,
            late=late,
            run_length=max(request.run_length, 1),
            run_seconds=request.run_seconds,
        )


def run_fields(rounds: Sequence[JudgedRound]) -> dict[str, Any]:
    """What an answer says of the rounds of a run after the first."""
    if not rounds:
        return {}
    fields: dict[str, Any] = {"run_token_ids": [token for one in rounds for token in one.tokens]}
    if any(one.depth for one in rounds):
        fields["run_proposed_counts"] = [one.depth for one in rounds]
        fields["run_accepted_counts"] = [one.accepted_count for one in rounds]
    if any(one.tree_token_count for one in rounds):
        fields["run_tree_token_counts"] = [one.tree_token_count for one in rounds]
        fields["run_ended_at_leaf"] = [one.ended_at_leaf for one in rounds]
    return fields


def expected_rows(held: HeldSequence[Verdict], step: int) -> WithheldBody | None:
    """What was begun for the step without its distributions, while it waits for them. One whose task was cancelled
    before it first ran leaves its body behind."""
    last = held.last
    if last is None or last.step != step or last.answer.done():
        return None
    return last.body if isinstance(last.body, WithheldBody) else None


def take_condition(request: pb.VerifyProposalRequest) -> VerdictCondition:
    """Removes the condition from the request: what is left is the ordinary call of the step, with its body. A
    continuation belongs to the ordinary call."""
    found = request.condition
    condition = VerdictCondition(step=found.step, accepted_count=found.accepted_count, next_token=found.next_token_id)
    request.ClearField("condition")
    request.ClearField("continuation")
    request.ClearField("may_go_on_plain")
    return condition


async def beside_the_loop(request: pb.VerifyProposalRequest, make: Callable[[], Made]) -> Made:
    """Calls `make`, for a large request in a thread."""
    if request.proposal.ByteSize() > MADE_ON_THE_LOOP_BYTES:
        return await asyncio.to_thread(make)
    return make()


def encode_logprobs(entry: TokenLogprobs) -> logprobs_pb2.TokenLogprobs:
    return logprobs_pb2.TokenLogprobs(
        logprob=entry.logprob, top_token_ids=entry.top_token_ids, top_logprobs=entry.top_logprobs
    )


def encode_features(layers: Sequence[int], verdict: Verdict) -> features_pb2.Features | None:
    """The requested hidden states; None if there are none."""
    if verdict.features is None:
        return None
    return features_pb2.Features(layers=layers, states=encode_tensor(verdict.features))
