"""Admission: before any work, a request gets its places, waits for them in fair order, or is refused."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from coordinator.adaptive.running_mean import RunningMean
from coordinator.admission.places import Places, QueueLimits, Refusal
from coordinator.admission.waiting_line import Ticket
from coordinator.deadline import NEVER, Deadline
from specpair.errors import CapacityExhaustedError, ShuttingDownError, SpecpairError

HOLD_MEMORY = 50
"""Requests over which the time that they hold their places is averaged."""
SHORTEST_RETRY = 0.1
LONGEST_RETRY = 60.0
"""Seconds: estimates beyond this are not reliable."""
UNKNOWN_RETRY = 1.0
"""Given before the first request has ended."""


class QueueCounts(Protocol):
    """What receives the numbers of the queue, such as the metrics."""

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Takes a function that returns the number of waiting requests."""

    def add_queue_time(self, elapsed: float) -> None:
        """Counts a request that got its places, `elapsed` seconds after its arrival."""

    def add_refusal(self, reason: Refusal) -> None:
        """Counts a request that was refused."""


class Admission:
    """Gives out the places of a coordinator, for all front ends. Times are in seconds."""

    def __init__(
        self,
        place_count: Callable[[], int],
        limits: QueueLimits,
        max_wait: float,
        counts: QueueCounts,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`place_count` returns how many outputs may be generated at once; a request waits at most `max_wait`."""
        self._places = Places(place_count, limits)
        self._limits = limits
        self._max_wait = max_wait
        self._counts = counts
        self._clock = clock
        self._waiters: dict[Ticket, asyncio.Future[None]] = {}
        self._hold_time = RunningMean(HOLD_MEMORY)
        self._is_closed = False
        counts.watch_waiting(lambda: self._places.line.count)

    @asynccontextmanager
    async def enter(
        self, output_count: int, *, client: str = "", byte_count: int = 0, deadline: Deadline = NEVER
    ) -> AsyncIterator[None]:
        """Holds places for `output_count` outputs, all or none, for as long as the context lasts.

        `byte_count` is the memory that the request uses while it waits, and `deadline` that of the client. Raises
        CapacityExhaustedError, at once if the queue is full, and ShuttingDownError. A request that is cancelled while
        it waits leaves the queue.
        """
        ticket = Ticket(output_count=output_count, client=client, byte_count=byte_count)
        start = self._clock()
        self._offer(ticket)
        entered = None
        try:
            await self._wait(ticket, deadline.at_most(self._max_wait))
            entered = self._clock()
            self._counts.add_queue_time(entered - start)
            yield
        finally:
            if entered is not None:
                self._hold_time.add(self._clock() - entered)
            self._leave(ticket)

    def keep_until(self, work: asyncio.Task[None], *, client: str = "") -> None:
        """Keeps a place until the work is done, such as closing an output's sequences at draft and target."""
        if work.done():
            return
        ticket = Ticket(output_count=1, client=client)
        self._places.keep(ticket)
        work.add_done_callback(lambda _: self._leave(ticket))

    def close(self) -> None:
        """Refuses all new and waiting requests from now on; running ones keep their places."""
        self._is_closed = True
        for ticket in self._places.line:
            self._turn_away(ticket, Refusal.SHUTTING_DOWN)

    def advance(self) -> None:
        """Gives free places to those who wait; to be called when there may be more places than before."""
        for ticket in self._places.advance():
            waiter = self._waiters.get(ticket)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def retry_after(self, output_count: int) -> float:
        """Seconds until `output_count` places are likely to be free, after the requests that wait now."""
        if not self._hold_time.count:
            return UNKNOWN_RETRY
        line, count = self._places.line, max(self._places.count, 1)
        missing = self._places.taken + line.output_count + output_count - count
        return min(max(self._hold_time.value * missing / count, SHORTEST_RETRY), LONGEST_RETRY)

    def _offer(self, ticket: Ticket) -> None:
        """Gives the ticket its places or lets it wait. Raises an error if it is refused."""
        if self._is_closed:
            raise self._refusal(ticket, Refusal.SHUTTING_DOWN)
        offer = self._places.offer(ticket)
        if offer.refusal is not None:
            raise self._refusal(ticket, offer.refusal)
        if offer.pushed_out is not None:
            self._turn_away(offer.pushed_out, Refusal.PUSHED_OUT)
        self.advance()

    async def _wait(self, ticket: Ticket, within: float) -> None:
        if self._places.has(ticket):
            return
        waiter = self._waiters[ticket] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within):
                await waiter
        except TimeoutError:
            raise self._refusal(ticket, Refusal.QUEUE_TIMEOUT) from None
        finally:
            del self._waiters[ticket]

    def _leave(self, ticket: Ticket) -> None:
        self._places.leave(ticket)
        self.advance()

    def _turn_away(self, ticket: Ticket, reason: Refusal) -> None:
        """Refuses a ticket that waits."""
        self._places.leave(ticket)
        waiter = self._waiters.get(ticket)
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._refusal(ticket, reason))
            waiter.exception()  # marks it as retrieved, in case the waiting request is cancelled first

    def _refusal(self, ticket: Ticket, reason: Refusal) -> SpecpairError:
        self._counts.add_refusal(reason)
        if reason is Refusal.SHUTTING_DOWN:
            return ShuttingDownError()
        return CapacityExhaustedError(
            self._words(ticket, reason), limit=self._places.count, retry_after=self.retry_after(ticket.output_count)
        )

    def _words(self, ticket: Ticket, reason: Refusal) -> str:
        places = self._places
        wanted = f"the request needs {ticket.output_count} of {places.count} places; {places.taken} are taken"
        limits = self._limits
        return {
            Refusal.QUEUE_FULL: f"{wanted}, and {places.line.count} requests wait; at most {limits.max_requests} may",
            Refusal.PUSHED_OUT: f"{wanted}, and the queue is full: a client with fewer waiting requests goes first",
            Refusal.QUEUE_TIMEOUT: f"{wanted}, and not enough became free in time",
            Refusal.TOO_LARGE: wanted,
            Refusal.CLIENT_LIMIT: f"a client may have {limits.max_outputs_per_client} outputs that run or wait",
        }[reason]
