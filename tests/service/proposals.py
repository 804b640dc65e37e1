"""Rounds of a draft and a target, one call after the other."""

from typing import Any

from specpair.v1 import draft_service_pb2
from specpair.v1 import target_service_pb2 as target_pb
from tests.service.conditional import PROMPT
from tests.services import RunningModel


async def ordinary_rounds(
    draft: RunningModel, target: RunningModel, name: str, steps: int, count: int
) -> list[tuple[Any, Any]]:
    """The calls of each step, with proposals of `count` tokens, and their verdicts."""
    rounds: list[tuple[Any, Any]] = []
    base, appended = len(PROMPT), []
    for step in range(steps):
        proposed = await draft.hot.ProposeTokens(
            draft_service_pb2.ProposeTokensRequest(
                sequence_id=name,
                step=step,
                base_length=base,
                appended_token_ids=appended,
                num_speculative_tokens=count,
            )
        )
        length = base + len(appended)
        request = target_pb.VerifyProposalRequest(
            sequence_id=name, step=step, base_length=length, proposal=proposed.proposal, include_probabilities=True
        )
        verdict = await target.hot.VerifyProposal(request)
        kept = list(proposed.proposal.token_ids[: verdict.accepted_count])
        base, appended = length, [*kept, verdict.next_token_id]
        rounds.append((request, verdict))
    return rounds
