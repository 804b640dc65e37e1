"""One request as its client sees it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from specpair.rpc.status import error_from_rpc
from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.history import End, Seen
from tests.faults.workload import Case, Variation

LATE_SECONDS = 1.1
"""A failure so shortly before the deadline counts as the deadline's.

The coordinator begins no pause, which may take a second, that would outlast the deadline.
"""

OnTokens = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of a request."""

    outputs: list[Seen]
    status: str
    """OK, CANCELLED where the client left, or the status it got, with its reason and message."""
    is_violation: bool
    """Whether it failed for another cause than its own deadline."""
    seconds: float


class Collector:
    """Gathers what comes for each output."""

    def __init__(self, n: int):
        self.token_ids: list[list[int]] = [[] for _ in range(n)]
        self.texts = [""] * n
        self.told_counts: list[int | None] = [None] * n

    @property
    def token_count(self) -> int:
        return sum(len(ids) for ids in self.token_ids)

    def take(self, response: pb.GenerateTokensResponse) -> None:
        index = response.choice_index
        self.token_ids[index] += [token.id for token in response.tokens]
        self.texts[index] += response.text
        if response.HasField("summary"):
            self.told_counts[index] = response.summary.completion_token_count

    def outputs(self, case: Case, end: End) -> list[Seen]:
        """An output that has its summary is finished, however its request ended."""
        return [
            Seen(
                request=case.name,
                choice_index=index,
                token_ids=tuple(ids),
                text=self.texts[index],
                end=end if self.told_counts[index] is None else End.FINISHED,
                told_count=self.told_counts[index],
            )
            for index, ids in enumerate(self.token_ids)
        ]


async def ask(stub: Any, case: Case, variation: Variation, on_tokens: OnTokens = lambda now: None) -> Told:
    """Sends a request and follows it to its end. `on_tokens` gets the time.monotonic of each message with tokens."""
    collector = Collector(variation.n)
    start = time.monotonic()
    call = stub.GenerateTokens(case.request(variation), timeout=variation.deadline_seconds)
    end, status, is_violation = End.FINISHED, "OK", False
    try:
        async for response in call:
            collector.take(response)
            if response.tokens:
                on_tokens(time.monotonic())
            if variation.cancel_after is not None and collector.token_count > variation.cancel_after:
                end, status = End.CANCELLED, "CANCELLED"
                break
    except grpc.aio.AioRpcError as error:
        is_late = time.monotonic() - start >= variation.deadline_seconds - LATE_SECONDS
        end = End.OUT_OF_TIME if is_late else End.FAILED
        status = describe(error)
        is_violation = not (is_late and variation.has_little_time)
    except asyncio.CancelledError:
        call.cancel()
        raise
    call.cancel()
    seconds = time.monotonic() - start
    return Told(outputs=collector.outputs(case, end), status=status, is_violation=is_violation, seconds=seconds)


def describe(error: grpc.aio.AioRpcError) -> str:
    """Status, reason and message."""
    known = error_from_rpc(error)
    return f"{error.code().name} {known.reason}: {known.message}"
