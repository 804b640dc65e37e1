"""The calls of a server that are under way, and the end of taking new ones."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from specpair.errors import CapacityExhaustedError, ShuttingDownError
from specpair.server.streams import DrainableRequests

OPEN_WHILE_DRAINING = ("/grpc.",)
"""Health and reflection are answered to the end, and nobody waits for theirs."""
QUIET_TURNS = 10
"""Turns of the event loop, not a time alone: a call takes several to be handed over, on a busy machine long ones."""
TURN_SECONDS = 0.001


class RunningCalls:
    """Counts calls until the last one has ended. Streams of requests are ended when the server drains."""

    def __init__(self, most_calls: int) -> None:
        """More calls than that at once are refused."""
        self._most_calls = most_calls
        self._count = 0
        self._arrival_count = 0
        self._quiet_at: int | None = None
        """The arrivals before the last quiet moment."""
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._open_streams: set[DrainableRequests[Any]] = set()

    @property
    def count(self) -> int:
        """Calls under way, without those of health and reflection."""
        return self._count

    def arrive(self) -> None:
        """A call came, of whichever method."""
        self._arrival_count += 1

    @contextmanager
    def running(self, method: str) -> Iterator[None]:
        """Around a call of `/package.Service/Method`."""
        if method.startswith(OPEN_WHILE_DRAINING):
            yield
            return
        self._count += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._is_idle.set()

    def check_open(self, method: str) -> None:
        """For a call that runs. Raises ShuttingDownError, CapacityExhaustedError if the server takes no such calls."""
        if method.startswith(OPEN_WHILE_DRAINING):
            return
        if self._is_draining:
            raise ShuttingDownError
        if self._count > self._most_calls:
            raise CapacityExhaustedError("too many calls at once", limit=self._most_calls)

    @contextmanager
    def drainable(self, requests: DrainableRequests[Any]) -> Iterator[None]:
        """Around a call with a stream of requests."""
        self._open_streams.add(requests)
        try:
            yield
        finally:
            self._open_streams.discard(requests)

    def drain(self) -> None:
        """Takes no new calls and ends the requests of open streams; what was read before is still answered."""
        self._is_draining = True
        for requests in tuple(self._open_streams):
            requests.drain()

    async def wait_until_quiet(self, within: float) -> None:
        """Until no call has come for a moment, for at most `within` seconds.

        grpc.aio takes one call at a time from gRPC's queue, and what is in it when the server stops ends CANCELLED.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._quiet_at != self._arrival_count:
                    self._quiet_at = self._arrival_count
                    for _ in range(QUIET_TURNS):
                        await asyncio.sleep(TURN_SECONDS)

    async def wait_until_idle(self, within: float) -> None:
        """Until no call is under way, for at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._is_idle.wait()
