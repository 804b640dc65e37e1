"""The client's side of a request that survives a restart of its coordinator."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from specpair.errors import (
    CapacityExhaustedError,
    ClientStalledError,
    PeerUnavailableError,
    ShuttingDownError,
    SpecpairError,
    StartingError,
)
from specpair.rpc.retry import RetryPolicy
from specpair.rpc.status import TRANSPORT_CODE, peer_errors
from specpair.v1 import coordinator_service_pb2 as pb

SEED_BITS = 53
POLICY = RetryPolicy()
PASSING = (PeerUnavailableError, ShuttingDownError, CapacityExhaustedError, ClientStalledError)
"""Errors that may soon pass."""


async def generate_tokens(
    stub: Any, request: pb.GenerateTokensRequest, *, patience: float = 30.0, metadata: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[pb.GenerateTokensResponse]:
    """Yields the answers of CoordinatorService.GenerateTokens, with as many calls as needed.

    If the coordinator becomes unreachable after the first answer, the request is sent again with the tokens received so
    far, for up to `patience` seconds. A request without an answer is retried as long while the coordinator stops or
    starts. No token is repeated or lost. Greedy outputs, and coupled ones whose request names the rule, are the same as
    without the interruption, others have the same distribution. The summary covers only the last call. Requests for
    several outputs, or for beams, are not resumed. Raises SpecpairError.
    """
    request = _with_seed(request)
    can_resume = max(request.n, request.best_of, 1) == 1 and not request.num_beams
    has_answer = is_complete = False
    failed_at, failure_count, prelude_count = None, 0, 0
    while True:
        skipped_count = 0 if request.resumed_token_ids else prelude_count
        try:
            with peer_errors():
                async for response in stub.GenerateTokens(request, metadata=metadata):
                    has_answer, failed_at, failure_count = True, None, 0
                    if skipped_count:  # answers that repeat the prompt were yielded before
                        skipped_count -= 1
                        continue
                    if can_resume:
                        request.resumed_token_ids.extend(token.id for token in response.tokens)
                        prelude_count += not request.resumed_token_ids
                        is_complete = response.HasField("summary")
                    yield response
            return
        except PASSING as error:
            if is_complete:
                return  # everything arrived; only the end of the call was lost
            may_ask_again = can_resume if has_answer else failed_at is not None or _is_between(error)
            failed_at = time.monotonic() if failed_at is None else failed_at
            if not may_ask_again or time.monotonic() - failed_at > patience:
                raise
            told_pause = error.retry_after if isinstance(error, CapacityExhaustedError) else 0.0
        await asyncio.sleep(min(told_pause + POLICY.pause(failure_count), patience))
        failure_count += 1


def _is_between(error: SpecpairError) -> bool:
    """Whether the coordinator is stopping or starting, so that one will soon be available.

    gRPC itself answers CANCELLED to calls that arrive just as its server stops.
    """
    is_cancelled = error.metadata.get(TRANSPORT_CODE) == grpc.StatusCode.CANCELLED.name
    return is_cancelled or isinstance(error, ShuttingDownError | StartingError)


def _with_seed(request: pb.GenerateTokensRequest) -> pb.GenerateTokensRequest:
    """A copy with a fixed seed, so that it draws the same tokens each time it is sent."""
    copy = pb.GenerateTokensRequest()
    copy.CopyFrom(request)
    if not copy.sampling.HasField("seed"):
        copy.sampling.seed = secrets.randbits(SEED_BITS)
    return copy
