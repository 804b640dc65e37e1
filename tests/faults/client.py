"""One request as its client sees it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from specpair.errors import PeerUnavailableError, ShuttingDownError, StartingError
from specpair.rpc.status import error_from_rpc
from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.history import End, Seen
from tests.faults.workload import Case, Variation

LATE_SECONDS = 0.5
"""A failure this shortly before the deadline counts as the deadline: client and server have different clocks."""
RESUME_SECONDS = 0.2
"""Pause before a request is sent again."""

OnTokens = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Told:
    """The result of a request."""

    outputs: list[Seen]
    status: str
    """OK, CANCELLED if the client cancelled, or the status received, with its reason and message."""
    is_violation: bool
    """Whether it failed for a reason other than its own deadline."""
    seconds: float
    speculated: Counter[str] = field(default_factory=Counter)
    """What finished outputs had of speculation, by `speculation_of`."""


class Collector:
    """Collects the messages of each output."""

    def __init__(self, n: int):
        self.token_ids: list[list[int]] = [[] for _ in range(n)]
        self.texts = [""] * n
        self.told_counts: list[int | None] = [None] * n
        self.speculated: Counter[str] = Counter()
        self._before = [0] * n

    @property
    def token_count(self) -> int:
        return sum(len(ids) for ids in self.token_ids)

    def take(self, response: pb.GenerateTokensResponse) -> None:
        index = response.choice_index
        self.token_ids[index] += [token.id for token in response.tokens]
        self.texts[index] += response.text
        if response.HasField("summary"):
            self.told_counts[index] = self._before[index] + response.summary.completion_token_count
            self.speculated += speculation_of(response.summary.speculation)

    def resume(self) -> None:
        """Another call continues after the tokens received; its summary counts only its own tokens."""
        self._before = [len(ids) for ids in self.token_ids]

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


async def ask(
    stub: Any,
    case: Case,
    variation: Variation,
    on_tokens: OnTokens = lambda now: None,
    on_resume: Callable[[str], None] | None = None,
) -> Told:
    """Sends a request and follows it to its end.

    `on_tokens` gets the time.monotonic of each message with tokens. With `on_resume`, which gets the status, a request
    whose coordinator goes away is sent again, behind what was received of it.
    """
    start, collector = time.monotonic(), Collector(variation.n)
    while True:
        remaining = variation.deadline_seconds - (time.monotonic() - start)
        try:
            status = await _follow(
                stub, _request(case, variation, collector), remaining, variation, collector, on_tokens
            )
            end, is_violation = (End.FINISHED if status == "OK" else End.CANCELLED), False
        except grpc.aio.AioRpcError as error:
            if on_resume is not None and _is_about_the_coordinator(error):
                on_resume(describe(error))
                collector = collector if variation.n == 1 else Collector(variation.n)
                collector.resume()
                await asyncio.sleep(RESUME_SECONDS)
                continue
            is_late = time.monotonic() - start >= variation.deadline_seconds - LATE_SECONDS
            end, status = (End.OUT_OF_TIME if is_late else End.FAILED), describe(error)
            is_violation = not (is_late and variation.has_little_time)
        seconds = time.monotonic() - start
        return Told(
            outputs=collector.outputs(case, end),
            status=status,
            is_violation=is_violation,
            seconds=seconds,
            speculated=collector.speculated,
        )


def speculation_of(summary: pb.SpeculationSummary) -> Counter[str]:
    """What shows that a run had what it was meant to have."""
    return Counter(
        ahead_rounds=summary.ahead_hit_count,
        rounds_passed_over=summary.ahead_plain_count,
        drafted_tokens=summary.draft_token_count,
        tokens_of_several_drafts=sum(draft.draft_token_count for draft in summary.drafts[1:]),
        accepted_guesses=summary.own_draft.accepted_guess_count,
        forced_tokens=summary.forced_token_count,
    )


def _request(case: Case, variation: Variation, collector: Collector) -> pb.GenerateTokensRequest:
    """The request for the missing tokens. Only a single output can be resumed; several start again."""
    request = case.request(variation)
    if variation.n == 1:
        request.resumed_token_ids.extend(collector.token_ids[0])
    return request


async def _follow(
    stub: Any,
    request: pb.GenerateTokensRequest,
    seconds: float,
    variation: Variation,
    collector: Collector,
    on_tokens: OnTokens,
) -> str:
    """Makes one call. Returns OK, or CANCELLED if the client cancelled. Raises AioRpcError."""
    call = stub.GenerateTokens(request, timeout=seconds, wait_for_ready=True)
    try:
        async for response in call:
            collector.take(response)
            if response.tokens:
                on_tokens(time.monotonic())
            if variation.cancel_after is not None and collector.token_count > variation.cancel_after:
                return "CANCELLED"
        return "OK"
    finally:
        call.cancel()


def _is_about_the_coordinator(error: grpc.aio.AioRpcError) -> bool:
    """Whether the coordinator itself, not a target, stopped or is stopping."""
    known = error_from_rpc(error)
    if error.code() is grpc.StatusCode.CANCELLED:  # not cancelled by this client
        return True
    is_own = isinstance(known, PeerUnavailableError) and ("code" in known.metadata or isinstance(known, StartingError))
    return error.code() is grpc.StatusCode.UNAVAILABLE and (is_own or isinstance(known, ShuttingDownError))


def describe(error: grpc.aio.AioRpcError) -> str:
    """Status, reason and message."""
    known = error_from_rpc(error)
    return f"{error.code().name} {known.reason}: {known.message}"
