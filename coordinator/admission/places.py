"""The places for outputs: which requests have them and which wait. Pure: no clock, no event loop."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from coordinator.admission.waiting_line import Ticket, WaitingLine


class Refusal(StrEnum):
    """Why a request was not taken."""

    QUEUE_FULL = "queue_full"
    PUSHED_OUT = "pushed_out"
    """The queue was full, and a client with fewer waiting requests came."""
    QUEUE_TIMEOUT = "queue_timeout"
    TOO_LARGE = "too_large"
    """It needs more places than there are."""
    CLIENT_LIMIT = "client_limit"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    """Limits of the queue and of each client."""

    max_requests: int
    """Requests that may wait."""
    max_bytes: int
    """Bytes that waiting requests may hold together."""
    max_outputs_per_client: int | None = None
    """Outputs of one client that may run or wait; None for no limit."""


class Offer(NamedTuple):
    """The result for an offered ticket: unless refused, it has its places or waits."""

    refusal: Refusal | None = None
    pushed_out: Ticket | None = None
    """A waiting ticket that was removed from the queue."""


class Places:
    """A limited number of places. Further requests wait in fair order up to a limit; beyond it they are refused."""

    def __init__(self, place_count: Callable[[], int], limits: QueueLimits):
        """`place_count` is called each time: a restarted target may have a different limit."""
        self.line = WaitingLine()
        self.taken = 0
        """Places that are taken."""
        self._place_count = place_count
        self._limits = limits
        self._holders: set[Ticket] = set()
        self._kept: set[Ticket] = set()
        self._taken_by: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._place_count()

    def has(self, ticket: Ticket) -> bool:
        """Whether the ticket has its places."""
        return ticket in self._holders

    def offer(self, ticket: Ticket) -> Offer:
        """Gives the ticket its places if they are free and no other waits; else it waits or is refused."""
        if ticket.output_count > self.count:
            return Offer(Refusal.TOO_LARGE)
        if self._is_over_limit(ticket):
            return Offer(Refusal.CLIENT_LIMIT)
        if not self.line.count and self._fits(ticket):
            self._take(ticket)
            return Offer()
        pushed_out = None
        if self._is_line_full(ticket) and not self._fits_soon(ticket):
            pushed_out = self.line.in_favour_of(ticket.client)
            if pushed_out is None or self._is_line_full(ticket, without=pushed_out):
                return Offer(Refusal.QUEUE_FULL)
            self.line.remove(pushed_out)
        self.line.push(ticket)
        return Offer(pushed_out=pushed_out)

    def keep(self, ticket: Ticket) -> None:
        """Takes places that are still in use and soon given back, whether or not they are free."""
        self._take(ticket)
        self._kept.add(ticket)

    def leave(self, ticket: Ticket) -> None:
        """The ticket gives its places back or leaves the queue."""
        if ticket not in self._holders:
            self.line.remove(ticket)
            return
        self._holders.remove(ticket)
        self._kept.discard(ticket)
        self.taken -= ticket.output_count
        self._taken_by[ticket.client] -= ticket.output_count
        if not self._taken_by[ticket.client]:
            del self._taken_by[ticket.client]

    def advance(self) -> list[Ticket]:
        """Gives free places to the next tickets and returns these; to be called after each offer and leave."""
        advanced: list[Ticket] = []
        while (ticket := self.line.first()) is not None and self._fits(ticket):
            self.line.pop()
            self._take(ticket)
            advanced.append(ticket)
        return advanced

    def _fits(self, ticket: Ticket) -> bool:
        """Whether its places are free. A ticket for more places than a restart left runs alone."""
        return self.taken == 0 or self.taken + ticket.output_count <= self.count

    def _fits_soon(self, ticket: Ticket) -> bool:
        """Whether its places are free once kept places are given back; then it may wait though the queue is full."""
        kept = sum(ticket.output_count for ticket in self._kept)
        return self.taken - kept + self.line.output_count + ticket.output_count <= self.count

    def _take(self, ticket: Ticket) -> None:
        self._holders.add(ticket)
        self.taken += ticket.output_count
        self._taken_by[ticket.client] += ticket.output_count

    def _is_over_limit(self, ticket: Ticket) -> bool:
        limit = self._limits.max_outputs_per_client
        if limit is None:
            return False
        kept = sum(other.output_count for other in self._kept if other.client == ticket.client)
        taken = self._taken_by[ticket.client] - kept
        return taken + self.line.outputs_of(ticket.client) + ticket.output_count > limit

    def _is_line_full(self, ticket: Ticket, without: Ticket | None = None) -> bool:
        count, byte_count = self.line.count + 1, self.line.byte_count + ticket.byte_count
        if without is not None:
            count, byte_count = count - 1, byte_count - without.byte_count
        return count > self._limits.max_requests or byte_count > self._limits.max_bytes
