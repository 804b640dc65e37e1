"""The queue of waiting requests and who is next. Pure: no clock, no event loop."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, eq=False)
class Ticket:
    """A request for places: it gets all of them at once."""

    output_count: int
    """Places that it needs."""
    client: str = ""
    byte_count: int = 0
    """Memory that it uses while it waits."""


@dataclass(eq=False)
class _Client:
    """The waiting requests of one client."""

    start: int
    """Its virtual clock: the start tag of its next request, in outputs."""
    tickets: deque[Ticket] = field(default_factory=deque)


class WaitingLine:
    """First come, first served within a client; fair between clients, by the number of outputs.

    Start-time fair queueing (Goyal, Vin, Cheng 1996): each client has a clock that its outputs advance, and the
    client with the lowest clock is next; for requests of equal size this is round robin. A client that was idle starts
    at the current time, so it cannot save up turns. Of two clients that always wait, neither is ahead by more outputs
    than their largest requests have together. No request overtakes the first in the queue, so a request for many
    outputs gets them as soon as that many places are free.
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
        """Adds the ticket to the queue, after those of its client."""
        client = self._clients.setdefault(ticket.client, _Client(self._now))
        client.tickets.append(ticket)
        self._add(ticket, 1)

    def first(self) -> Ticket | None:
        """The next ticket; None if none waits."""
        client = self._next_client()
        return None if client is None else client.tickets[0]

    def pop(self) -> Ticket:
        """Removes the next ticket and returns it."""
        client = self._next_client()
        assert client is not None
        ticket = client.tickets.popleft()
        self._now = client.start
        client.start += ticket.output_count
        self._clients[ticket.client] = self._clients.pop(ticket.client)  # after those with the same clock
        self._add(ticket, -1)
        self._forget()
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Removes the ticket; without effect if it does not wait."""
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
        """The ticket to remove when the queue is full and `client` joins: the last of the client with most waiting.

        None if no other client has at least two more waiting: otherwise the two would only swap positions.
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
        """Drops clients that have no ticket and whose clocks are not ahead; all clients if none waits."""
        kept = {} if self.count == 0 else self._clients
        self._clients = {name: held for name, held in kept.items() if held.tickets or held.start > self._now}
