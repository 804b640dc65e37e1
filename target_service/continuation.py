"""The call that a target goes on to by itself: the next one, once its verdict is known."""

from collections.abc import Iterable
from dataclasses import dataclass

from specpair.rpc.messages import body_of
from specpair.sequences.sequel import Sequel
from specpair.speculation.counted_rows import CountedRows
from specpair.speculation.randomness import LAST_STEP
from specpair.v1 import target_service_pb2 as pb
from target_service.own_proposal import OwnProposal
from target_service.proposal_message import encode_proposal
from target_service.verifier import NextWork, Verifier
from target_service.verify_work import Verdict, VerifyCall, VerifyWork


@dataclass(frozen=True)
class OutputEnd:
    """What ends an output among the tokens that a call commits."""

    stops: frozenset[int]

    def spares(self, answer: Verdict | VerifyWork) -> bool:
        """Whether none of the committed tokens ends it. The work is asked on the device thread."""
        if not self.stops:
            return True
        return not any(token in self.stops for one in answer.rounds for token in one.tokens)


@dataclass(frozen=True)
class Following:
    """The call that follows on another one, without what only the verdict on that says."""

    common: pb.VerifyProposalRequest
    vocab_size: int
    plain: VerifyCall
    """The call if the target proposes nothing, but for its step and position."""

    def request(self, step: int, length: int, proposal: OwnProposal | None) -> pb.VerifyProposalRequest:
        """The message of the call of this step, after `length` committed tokens, with what the target proposed."""
        request = pb.VerifyProposalRequest()
        request.CopyFrom(self.common)
        request.step, request.base_length = step, length
        if proposal is not None:
            request.proposal.CopyFrom(encode_proposal(proposal))
        return request

    def call(self, step: int, length: int, proposal: OwnProposal | None) -> VerifyCall:
        """The same decoded, without a message: the device thread makes a call for each sequence between two passes."""
        known = self.plain._replace(step=step, base_length=length)
        if proposal is None:
            return known
        tokens, kept_step = proposal.token_ids, None if proposal.rows is None else proposal.step
        draft = CountedRows.one_hot(tokens, self.vocab_size)
        return known._replace(proposed=tokens, draft=draft, tree=proposal.tree, kept_step=kept_step)


def take_sequel(
    request: pb.VerifyProposalRequest,
    stops: Iterable[int],
    verifier: Verifier,
) -> Sequel[Verdict] | None:
    """What follows the call, or may follow it; None if it is not known, as with forced tokens, which would come before
    it. The request is left without what it says of that: the same call with and without a continuation is one. `stops`
    are the tokens that end the output."""
    is_promised = request.HasField("continuation")
    may_follow = request.may_go_on_plain and not request.next_proposal_count
    if not is_promised and not request.may_go_on_plain:
        return None
    first = request.step
    last_steps = max(request.run_length, 1) + max(request.continuation.run_length, 1) - 1
    is_known = (is_promised or may_follow) and not request.max_forced_tokens and first + last_steps <= LAST_STEP
    common = following_call(request) if is_known else None
    request.ClearField("continuation")
    request.ClearField("may_go_on_plain")
    if common is None:
        return None
    vocab_size = verifier.sequences.limits.vocab_size
    following = Following(common, vocab_size, plain_call(common, vocab_size))

    def begin_on_device(before: VerifyWork) -> NextWork | None:
        length = len(before.sequence.tokens)
        return verifier.go_on(before, lambda: following.call(before.step + 1, length, before.own_proposal))

    def step_after(verdict: Verdict) -> int:
        return first + len(verdict.rounds)

    return Sequel(
        sequence_id=request.sequence_id,
        step=first,
        following_step=step_after,
        goes_on=OutputEnd(frozenset(stops)).spares,
        body=lambda verdict: body_of(following.request(step_after(verdict), verdict.length, verdict.proposal)),
        begin=lambda verdict, held: verifier.submit(
            following.call(step_after(verdict), verdict.length, verdict.proposal), held
        ),
        begin_on_device=begin_on_device,
        is_last_resort=not is_promised,
    )


def following_call(request: pb.VerifyProposalRequest) -> pb.VerifyProposalRequest:
    """What is known of the call after this one. Keeps nothing of its proposal alive."""
    continuation = request.continuation
    return pb.VerifyProposalRequest(
        sequence_id=request.sequence_id,
        run_length=continuation.run_length,
        run_seconds=continuation.run_seconds,
        include_probabilities=request.include_probabilities,
        feature_layers=request.feature_layers,
        next_proposal_count=continuation.next_proposal_count,
        next_proposal_min_confidence=continuation.next_proposal_min_confidence,
    )


def plain_call(request: pb.VerifyProposalRequest, vocab_size: int) -> VerifyCall:
    """A call without a proposal, decoded."""
    return VerifyCall(
        sequence_id=request.sequence_id,
        step=request.step,
        base_length=request.base_length,
        appended=[],
        proposed=[],
        draft=CountedRows.one_hot([], vocab_size),
        run_length=max(request.run_length, 1),
        run_seconds=request.run_seconds,
        include_probabilities=request.include_probabilities,
        feature_layers=tuple(request.feature_layers),
        next_count=request.next_proposal_count,
        next_min_confidence=request.next_proposal_min_confidence,
    )
