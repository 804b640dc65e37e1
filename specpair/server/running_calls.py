"""Tracks the calls of a server that are under way, and refuses new ones while it drains."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from specpair.errors import CapacityExhaustedError, ShuttingDownError
from specpair.server.streams import DrainableRequests

OPEN_WHILE_DRAINING = ("/grpc.",)
"""Health and reflection are answered until the server stops; the shutdown does not wait for them."""
QUIET_TURNS = 10
"""Turns of the event loop without a new call. Not just a time: handing over a call takes several turns, which are long
on a busy machine."""
TURN_SECONDS = 0.001


class RunningCalls:
    """Counts calls until the last one has ended. Streams of requests are ended when the server drains."""

    def __init__(self, most_calls: int) -> None:
        """Calls beyond `most_calls` at once are refused."""
        self._most_calls = most_calls
        self._count = 0
        self._arrival_count = 0
        self._quiet_at: int | None = None
        """Number of arrivals at the last look."""
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._open_streams: set[DrainableRequests[Any]] = set()

    @property
    def count(self) -> int:
        """Calls under way, without those of health and reflection."""
        return self._count

    def arrive(self) -> None:
        """Notes that a call of any method has arrived."""
        self._arrival_count += 1

    @contextmanager
    def running(self, method: str) -> Iterator[None]:
        """Counts a call of `/package.Service/Method` inside the context."""
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
        """Checks a counted call. Raises ShuttingDownError while draining, CapacityExhaustedError above the limit."""
        if method.startswith(OPEN_WHILE_DRAINING):
            return
        if self._is_draining:
            raise ShuttingDownError
        if self._count > self._most_calls:
            raise CapacityExhaustedError("too many calls at once", limit=self._most_calls)

    @contextmanager
    def drainable(self, requests: DrainableRequests[Any]) -> Iterator[None]:
        """Has `drain` end these requests while the context is open."""
        self._open_streams.add(requests)
        try:
            yield
        finally:
            self._open_streams.discard(requests)

    def drain(self) -> None:
        """Refuses new calls and ends the requests of open streams; requests read before are still answered."""
        self._is_draining = True
        for requests in tuple(self._open_streams):
            requests.drain()

    async def wait_until_quiet(self, within: float) -> None:
        """Waits until no call has arrived for a moment, for at most `within` seconds.

        grpc.aio takes one call at a time from gRPC's queue. Calls in the queue get CANCELLED when the server stops.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._quiet_at != self._arrival_count:
                    self._quiet_at = self._arrival_count
                    for _ in range(QUIET_TURNS):
                        await asyncio.sleep(TURN_SECONDS)

    async def wait_until_idle(self, within: float) -> None:
        """Waits until no call is under way, for at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._is_idle.wait()
