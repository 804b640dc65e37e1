"""The requests of `specpair verify-exactness`, made at a coordinator."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from specpair.errors import CapacityExhaustedError
from specpair.exactness.draws import Draw, Drawn
from specpair.rpc.messages import rule_to_proto, sampling_to_proto, work_ahead_to_proto
from specpair.rpc.status import peer_errors
from specpair.v1 import coordinator_service_pb2 as pb

REQUEST_TIMEOUT = 300.0
"""Seconds that one short request may take on a busy server."""
BUSY_RETRIES = 60
BUSY_DELAY = 0.5


async def draw_all(
    stub: Any,
    draws: Iterable[Draw],
    concurrency: int,
    on_drawn: Callable[[], None] = lambda: None,
    *,
    has_encoder: bool = False,
) -> dict[Draw, Drawn]:
    """The output of every request; `concurrency` requests run at once. Prompts are what the target's encoder reads, if
    it has one. Raises SpecpairError."""
    waiting = iter(draws)
    outputs: dict[Draw, Drawn] = {}

    async def work() -> None:
        for draw in waiting:
            outputs[draw] = await _draw_patiently(stub, draw, has_encoder=has_encoder)
            on_drawn()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return outputs


async def _draw_patiently(stub: Any, draw: Draw, *, has_encoder: bool) -> Drawn:
    """Waits while the server is full: it may have other clients."""
    for _ in range(BUSY_RETRIES):
        try:
            return await draw_one(stub, draw, has_encoder=has_encoder)
        except CapacityExhaustedError:
            await asyncio.sleep(BUSY_DELAY)
    return await draw_one(stub, draw, has_encoder=has_encoder)


async def draw_one(stub: Any, draw: Draw, *, has_encoder: bool = False) -> Drawn:
    """The output of one request. Raises SpecpairError."""
    with peer_errors():
        call = stub.GenerateTokens(request_of(draw, has_encoder=has_encoder), timeout=REQUEST_TIMEOUT)
        responses = [response async for response in call]
    speculation = responses[-1].summary.speculation
    tokens = [token for response in responses for token in response.tokens]
    return Drawn(
        token_ids=tuple(token.id for token in tokens),
        gaps=_gaps(tokens) if draw.wants_gaps else None,
        round_count=speculation.round_count,
        draft_token_count=speculation.draft_token_count,
        accepted_token_count=speculation.accepted_token_count,
        ahead_count=speculation.ahead_hit_count + speculation.ahead_late_count,
        fallback_count=speculation.fallback_count,
    )


def request_of(draw: Draw, *, has_encoder: bool = False) -> pb.GenerateTokensRequest:
    """The message for a draw."""
    request = pb.GenerateTokensRequest(
        sampling=sampling_to_proto(draw.sampling),
        max_tokens=draw.max_tokens,
        num_speculative_tokens=draw.num_speculative_tokens,
        rule=rule_to_proto(draw.rule),
        work_ahead=work_ahead_to_proto(draw.work_ahead),
        num_tree_tokens=draw.num_tree_tokens,
        ignore_eos=True,
        logprobs=2 if draw.wants_gaps else None,
    )
    if isinstance(draw.prompt, str):
        setattr(request, "encoder_text" if has_encoder else "text", draw.prompt)
    else:
        (request.encoder_token_ids if has_encoder else request.token_ids).ids.extend(draw.prompt)
    return request


def _gaps(tokens: list[pb.GeneratedToken]) -> tuple[float, ...] | None:
    """For each token, the best logprob minus the second best; None if any token has none."""
    best = [list(token.logprobs.top_logprobs) for token in tokens]
    if any(len(logprobs) < 2 for logprobs in best):
        return None
    return tuple(logprobs[0] - logprobs[1] for logprobs in best)
