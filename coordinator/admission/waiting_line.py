"""Who is next among the requests that wait. Pure: no clock, no event loop."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, eq=False)
class Ticket:
    """A request for places: it gets all of them at once."""

    output_count: int
    """Places that it wants."""
    client: str = ""
    byte_count: int = 0
    """What it holds in memory while it waits."""


@dataclass(eq=False)
class _Client:
    """What one client waits for."""

    start: int
    """Its clock: the outputs that went before its next request."""
    tickets: deque[Ticket] = field(default_factory=deque)


class WaitingLine:
    """First come, first served within a client; between clients in turn, by what they asked for.

    Start-time fair queueing (Goyal, Vin, Cheng 1996): each client has a clock that its outputs push on, and the one
    whose clock is behind is next; with requests of one size that is a round robin. A client that was away starts at
    the time of those who are there, so nobody saves up turns. Of two clients that both wait all the time, none is ahead
    by more outputs than their largest requests have together. Nobody overtakes the first in the line, so a request
    for many outputs waits no longer for them than until so many are free.
    """

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._now = 0
        """Start of the request that was taken last."""
        self.count = 0
        """Requests that wait."""
        self.output_count = 0
        self.byte_count = 0

    def push(self, ticket: Ticket) -> None:
        """The ticket waits, behind those of its client."""
        client = self._clients.setdefault(ticket.client, _Client(self._now))
        client.tickets.append(ticket)
        self._add(ticket, 1)

    def first(self) -> Ticket | None:
        """The one that is next; None if nobody waits."""
        client = self._next_client()
        return None if client is None else client.tickets[0]

    def pop(self) -> Ticket:
        """The one that is next, which no longer waits."""
        client = self._next_client()
        assert client is not None
        ticket = client.tickets.popleft()
        self._now = client.start
        client.start += ticket.output_count
        self._clients[ticket.client] = self._clients.pop(ticket.client)  # behind those whose clocks say the same
        self._add(ticket, -1)
        self._forget()
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """The ticket no longer waits; without effect if it does not."""
        client = self._clients.get(ticket.client)
        if client is None or ticket not in client.tickets:
            return
        client.tickets.remove(ticket)
        self._add(ticket, -1)
        self._forget()

    def outputs_of(self, client: str) -> int:
        """Places that the client waits for."""
        held = self._clients.get(client)
        return 0 if held is None else sum(ticket.output_count for ticket in held.tickets)

    def in_favour_of(self, client: str) -> Ticket | None:
        """Who has to go when the line is full and `client` wants to join it: the last of whoever has most waiting.

        None if nobody has at least two more than the client, which then would only change places with another.
        """
        longest = max(self._clients.values(), key=lambda other: len(other.tickets), default=None)
        held = self._clients.get(client)
        own_count = 0 if held is None else len(held.tickets)
        if longest is None or len(longest.tickets) < own_count + 2:
            return None
        return longest.tickets[-1]

    def __iter__(self) -> Iterator[Ticket]:
        return iter([ticket for client in self._clients.values() for ticket in client.tickets])

    def _next_client(self) -> _Client | None:
        waiting = (client for client in self._clients.values() if client.tickets)
        return min(waiting, key=lambda client: client.start, default=None)

    def _add(self, ticket: Ticket, sign: int) -> None:
        self.count += sign
        self.output_count += sign * ticket.output_count
        self.byte_count += sign * ticket.byte_count

    def _forget(self) -> None:
        """Drops the clients that have nothing waiting and are not ahead; everything if nobody waits."""
        kept = {} if self.count == 0 else self._clients
        self._clients = {name: held for name, held in kept.items() if held.tickets or held.start > self._now}
