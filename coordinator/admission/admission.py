"""Admission: before any work is done, a request gets its places, waits for them in fair order, or is refused."""

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
"""Requests over which the time is averaged that they keep their places."""
SHORTEST_RETRY = 0.1
LONGEST_RETRY = 60.0
"""Seconds: what is further away than that nobody can tell."""
UNKNOWN_RETRY = 1.0
"""Before the first request has ended."""


class QueueCounts(Protocol):
    """Who is told of the queue, such as the metrics."""

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Where the number of waiting requests is known."""

    def add_queue_time(self, elapsed: float) -> None:
        """A request has its places, so many seconds after it came."""

    def add_refusal(self, reason: Refusal) -> None:
        """A request got none."""


class Admission:
    """The one door to the places of a coordinator, for all front ends. Times are in seconds."""

    def __init__(
        self,
        place_count: Callable[[], int],
        limits: QueueLimits,
        max_wait: float,
        counts: QueueCounts,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`place_count` says how many outputs may be generated at once; a request waits at most `max_wait`."""
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
        """Holds places for so many outputs, all or none, for as long as the context lasts.

        `client` is who asks, `byte_count` what the request holds in memory while it waits, and `deadline` that of the
        client. Raises CapacityExhaustedError, at once where the queue is full, and ShuttingDownError. Whoever is
        cancelled while it waits leaves the queue.
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
        """Keeps a place until the work is done, such as giving back what an output had at draft and target."""
        if work.done():
            return
        ticket = Ticket(output_count=1, client=client)
        self._places.keep(ticket)
        work.add_done_callback(lambda _: self._leave(ticket))

    def close(self) -> None:
        """From now on all are refused, those who wait as well; who has places keeps them."""
        self._is_closed = True
        for ticket in self._places.line:
            self._turn_away(ticket, Refusal.SHUTTING_DOWN)

    def retry_after(self, output_count: int) -> float:
        """When so many places are likely to be free, if all go on as before and who waits now is served first."""
        if not self._hold_time.count:
            return UNKNOWN_RETRY
        line, count = self._places.line, max(self._places.count, 1)
        missing = self._places.taken + line.output_count + output_count - count
        return min(max(self._hold_time.value * missing / count, SHORTEST_RETRY), LONGEST_RETRY)

    def _offer(self, ticket: Ticket) -> None:
        """The ticket has its places or waits. Raises the error of one that is refused."""
        if self._is_closed:
            raise self._refusal(ticket, Refusal.SHUTTING_DOWN)
        offer = self._places.offer(ticket)
        if offer.refusal is not None:
            raise self._refusal(ticket, offer.refusal)
        if offer.pushed_out is not None:
            self._turn_away(offer.pushed_out, Refusal.PUSHED_OUT)
        self._advance()

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
        self._advance()

    def _advance(self) -> None:
        for ticket in self._places.advance():
            waiter = self._waiters.get(ticket)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _turn_away(self, ticket: Ticket, reason: Refusal) -> None:
        """Ends the waiting of one that waits."""
        self._places.leave(ticket)
        waiter = self._waiters.get(ticket)
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._refusal(ticket, reason))
            waiter.exception()  # seen, even if whoever waits is cancelled before it gets to know

    def _refusal(self, ticket: Ticket, reason: Refusal) -> SpecpairError:
        self._counts.add_refusal(reason)
        if reason is Refusal.SHUTTING_DOWN:
            return ShuttingDownError()
        return CapacityExhaustedError(
            self._words(ticket, reason), limit=self._places.count, retry_after=self.retry_after(ticket.output_count)
        )

    def _words(self, ticket: Ticket, reason: Refusal) -> str:
        places = self._places
        wanted = f"the request wants {ticket.output_count} of {places.count} places; {places.taken} are taken"
        limits = self._limits
        return {
            Refusal.QUEUE_FULL: f"{wanted}, and {places.line.count} requests wait; at most {limits.max_requests} may",
            Refusal.PUSHED_OUT: f"{wanted}, and the queue is full: another client's had to be let in",
            Refusal.QUEUE_TIMEOUT: f"{wanted}: none came free for it in time",
            Refusal.TOO_LARGE: wanted,
            Refusal.CLIENT_LIMIT: f"a client may have {limits.max_outputs_per_client} outputs that run or wait",
        }[reason]
