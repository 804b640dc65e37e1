"""The target service as the coordinator calls it."""

import time
from collections.abc import Sequence
from typing import Any

from coordinator.peers.ahead_blocks import BlockKey
from coordinator.peers.answers import (
    Scores,
    Verdict,
    accepted_path,
    call_times,
    early_call_times,
    forced_tokens,
    proposing_time,
    run_counts,
)
from coordinator.peers.beam_answers import TreeRows, tree_rows
from coordinator.peers.failures import known_failures
from coordinator.peers.model_peer import ModelPeer
from coordinator.peers.own_order import NO_ORDER, OwnOrder
from specpair.client.channel import verification_caller
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.tracing import trace_metadata
from specpair.v1 import logprobs_pb2, proposal_pb2, target_service_pb2
from specpair.v1.target_service_pb2_grpc import TargetServiceStub


class TargetPeer(ModelPeer):
    """The target service."""

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        super().__init__(address, security)
        self._verifications = verification_caller(self.channel)
        self._stub = TargetServiceStub(self.channel)

    async def verify(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        proposal: proposal_pb2.Proposal | None,
        within: float,
        include_probabilities: bool = False,
        order: OwnOrder = NO_ORDER,
        appended: Sequence[int] = (),
        max_forced: int = 0,
        *,
        following_order: OwnOrder | None = None,
        was_begun: bool = False,
        may_go_on_plain: bool = False,
    ) -> Verdict:
        """Judges a proposal after the `base_length` tokens that the target holds and the `appended` ones; without one,
        gives the next token. The target then proposes what is in `order` for the next step, goes on with a run of
        rounds whose first step is `step`, and names up to `max_forced` forced tokens.

        With a `following_order` the call of the next step is known, by this order: the target begins with it as soon as
        it has the verdict. If it `may_go_on_plain` it may begin without a proposal, if none is there, and says so. If
        the call itself `was_begun`, its computation may have begun before it is made.
        """
        request = target_service_pb2.VerifyProposalRequest(
            sequence_id=sequence_id,
            step=step,
            base_length=base_length,
            proposal=proposal,
            include_probabilities=include_probabilities,
            **_run(order),
            next_proposal_count=order.count,
            next_proposal_min_confidence=order.min_confidence,
            appended_token_ids=appended,
            max_forced_tokens=max_forced,
            continuation=None if following_order is None else _continuation(following_order),
            may_go_on_plain=may_go_on_plain,
        )
        start = time.perf_counter()
        response = await self._verifications.call(request, within)
        times = early_call_times(start, response) if was_begun else call_times(start, response)
        return Verdict(
            path=accepted_path(response, proposal),
            next_token_id=response.next_token_id,
            times=times,
            batch_token_count=response.batch_token_count,
            logprobs=[unpinned(entry) for entry in response.logprobs],
            target_probabilities=tuple(response.target_probabilities),
            draft_probabilities=tuple(response.draft_probabilities),
            proposal=response.next_proposal if response.HasField("next_proposal") else None,
            run_ids=tuple(response.run_token_ids),
            run_counts=run_counts(response, order),
            forced_ids=forced_tokens(response, max_forced),
            has_gone_on_plain=may_go_on_plain and response.has_gone_on_plain,
            cached_token_count=response.cached_token_count,
            begun_before=start - times.started_at,
            proposing_time=proposing_time(response, times),
        )

    def verify_early(
        self, sequence_id: str, key: BlockKey, proposal: proposal_pb2.Proposal, include_probabilities: bool
    ) -> None:
        """Sends what `verify` would send after the outcome `key`, before it is known whether that comes.

        If it comes the target begins, and the call of `verify` finds the step under way. Raises ShuttingDownError, and
        InvalidFieldError if the proposal is too large for a message.
        """
        request = target_service_pb2.VerifyProposalRequest(
            sequence_id=sequence_id,
            step=key.step,
            base_length=key.base_length + key.accepted_count + 1,
            proposal=proposal,
            include_probabilities=include_probabilities,
            condition=_condition(key),
        )
        self._verifications.tell(request)

    async def score(self, token_ids: Sequence[int], top_count: int, within: float) -> Scores:
        """The logprob of each token but the first, and of the `top_count` likeliest tokens at its position."""
        request = target_service_pb2.ScoreTokensRequest(token_ids=token_ids, logprobs=top_count)
        with known_failures():
            response = await self._stub.ScoreTokens(request, timeout=within)
        return Scores(instance_id=response.instance_id, logprobs=response.logprobs)

    async def score_tree(self, request: target_service_pb2.ScoreTreeRequest, within: float) -> TreeRows:
        """The likeliest tokens after each asked node. Raises SpecpairError if the answer does not fit the request."""
        start = time.perf_counter()
        with known_failures():
            response = await self._stub.ScoreTree(request, timeout=within, metadata=trace_metadata())
        return tree_rows(request, response, call_times(start, response))

    async def close(self) -> None:
        await self._verifications.close()
        await super().close()


def _condition(key: BlockKey) -> target_service_pb2.Condition:
    return target_service_pb2.Condition(
        step=key.step - 1, accepted_count=key.accepted_count, next_token_id=key.next_token_id
    )


def _continuation(order: OwnOrder) -> target_service_pb2.Continuation:
    return target_service_pb2.Continuation(
        next_proposal_count=order.count,
        next_proposal_min_confidence=order.min_confidence,
        **_run(order),
    )


def _run(order: OwnOrder) -> dict[str, Any]:
    """The fields of a run. For a single token they are unset, as older services know it."""
    return {"run_length": order.run_length, "run_seconds": order.run_seconds} if order.run_length > 1 else {}


def unpinned(entry: logprobs_pb2.TokenLogprobs) -> logprobs_pb2.TokenLogprobs:
    """A copy that does not keep the whole answer alive."""
    copy = logprobs_pb2.TokenLogprobs()
    copy.CopyFrom(entry)
    return copy
