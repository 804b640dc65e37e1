"""The call that a target goes on to by itself: the next one, once its verdict is known."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from specpair.rpc.messages import body_of
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequel import Sequel
from specpair.v1 import target_service_pb2 as pb
from target_service.proposal_message import encode_proposal
from target_service.verify_work import Verdict, VerifyWork

LAST_STEP = 2**64 - 1
"""The largest that a message can have."""

Begin = Callable[[pb.VerifyProposalRequest, HeldSequence[Verdict]], Callable[[], Awaitable[Verdict]]]
"""Begins with a call for which nobody waits yet; returns what waits for its verdict."""


@dataclass(frozen=True)
class OutputEnd:
    """What ends an output among the tokens that a call commits."""

    stops: frozenset[int]
    proposed: list[int]

    def spares(self, answer: Verdict | VerifyWork) -> bool:
        """Whether none of the committed tokens ends it. The work is asked on the device thread."""
        if not self.stops:
            return True
        return answer.next_token not in self.stops and not any(self.proposed[i] in self.stops for i in answer.path)


def take_sequel(request: pb.VerifyProposalRequest, stops: Iterable[int], begin: Begin) -> Sequel[Verdict] | None:
    """What follows the call; None if it is not known, as with forced tokens, which would come before it. The request is
    left without its continuation: the same call with and without one is one. `stops` are the tokens that end the
    output."""
    if not request.HasField("continuation"):
        return None
    is_known = not request.max_forced_tokens and request.step < LAST_STEP
    following = following_calls(request) if is_known else None
    request.ClearField("continuation")
    if following is None:
        return None
    return Sequel(
        sequence_id=request.sequence_id,
        step=request.step,
        goes_on=OutputEnd(frozenset(stops), list(request.proposal.token_ids)).spares,
        body=lambda verdict: body_of(following(verdict)),
        begin=lambda verdict, held: begin(following(verdict), held),
    )


def following_calls(request: pb.VerifyProposalRequest) -> Callable[[Verdict], pb.VerifyProposalRequest]:
    """Gives the call that follows a verdict on this one. Keeps nothing of the call's proposal alive."""
    continuation = request.continuation
    common = pb.VerifyProposalRequest(
        sequence_id=request.sequence_id,
        step=request.step + 1,
        include_probabilities=request.include_probabilities,
        feature_layers=request.feature_layers,
        next_proposal_count=continuation.next_proposal_count,
        next_proposal_min_confidence=continuation.next_proposal_min_confidence,
    )

    def following(verdict: Verdict) -> pb.VerifyProposalRequest:
        call = pb.VerifyProposalRequest()
        call.CopyFrom(common)
        call.base_length = verdict.length
        if verdict.proposal is not None:
            call.proposal.CopyFrom(encode_proposal(verdict.proposal))
        return call

    return following
