"""The openings of one sequence at the instances of a service."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from coordinator.peers.link import Link
from specpair.errors import SequenceNotFoundError
from specpair.options import SequenceOptions

LinkT = TypeVar("LinkT", bound=Link[Any])


class Openings(Generic[LinkT]):
    """Each has a name of its own, so that a call which comes late finds nothing.

    By the same name a call to an earlier opening, still on its way when the sequence was opened there again, would be
    taken for the next step: what it says would stand among the committed tokens, and the steps after it behind them.
    """

    def __init__(self, sequence_id: str, prompt_length: int, options: SequenceOptions):
        """The first opening is called so, which the log and the traces of the services know."""
        self.sequence_id = sequence_id
        self._prompt_length = prompt_length
        self._options = options
        self._count = 0
        self._known: list[tuple[LinkT, str]] = []
        """All that may still be there."""
        self._has_ended = False

    def begin(self, link: LinkT) -> str:
        """The name of a new one at this instance. Raises SequenceNotFoundError after the end: nobody would close it."""
        if self._has_ended:
            raise SequenceNotFoundError(self.sequence_id)
        self._count += 1
        name = self.sequence_id if self._count == 1 else f"{self.sequence_id}-{self._count}"
        self._known.append((link, name))
        return name

    async def open(self, link: LinkT, name: str, history: Sequence[int], within: Callable[[], float]) -> None:
        """Opens the sequence there by the name of a new one; `within` says what a call may take, in seconds.

        Raises SpecpairError, also for a process that is not known yet.
        """
        instance_id = await link.peer.open(name, history, self._prompt_length, self._options, within())
        await link.confirm(instance_id, within())

    async def fork(self, link: LinkT, name: str, original: str, length: int, within: Callable[[], float]) -> None:
        """The same as a copy of the first `length` tokens of another."""
        instance_id = await link.peer.fork(original, name, length, self._options.sampling, within())
        await link.confirm(instance_id, within())

    async def end_at(self, link: LinkT, within: float) -> None:
        """Closes those at one instance, where they would take the place of the next. Raises SpecpairError."""
        for name in [name for known, name in self._known if known is link]:
            await link.peer.close_sequence(name, within)
            self._forget(link, name)

    def owe_at(self, link: LinkT) -> None:
        """Has those at one instance closed on the side, once it can be reached."""
        for name in [name for known, name in self._known if known is link]:
            link.owe_close(name)
            self._forget(link, name)

    async def end(self) -> None:
        """Closes them all: now, or on the side where that does not succeed at once."""
        self._has_ended = True
        await asyncio.gather(*(link.close_sequence(name) for link, name in self._known))

    def _forget(self, link: LinkT, name: str) -> None:
        self._known = [entry for entry in self._known if entry != (link, name)]
