"""The openings of one sequence at the instances of a service."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from coordinator.peers.link import Link
from specpair.errors import SequenceNotFoundError
from specpair.options import SequenceOptions

LinkT = TypeVar("LinkT", bound=Link[Any])


class Openings(Generic[LinkT]):
    """Each opening has its own name, so that a late call to an earlier one finds no sequence.

    With one name for all, a call still under way when the sequence was reopened would be taken for the next step: its
    tokens would be mixed into the committed ones.
    """

    def __init__(self, sequence_id: str, prompt_length: int, options: SequenceOptions):
        """The first opening is named `sequence_id`, as in the log and the traces of the services."""
        self.sequence_id = sequence_id
        self._prompt_length = prompt_length
        self._options = options
        self._count = 0
        self._known: list[tuple[LinkT, str]] = []
        """All openings that may still exist."""
        self._has_ended = False

    def begin(self, link: LinkT) -> str:
        """The name of a new opening at this instance. Raises SequenceNotFoundError after `end`."""
        if self._has_ended:
            raise SequenceNotFoundError(self.sequence_id)
        self._count += 1
        name = self.sequence_id if self._count == 1 else f"{self.sequence_id}-{self._count}"
        self._known.append((link, name))
        return name

    async def open(self, link: LinkT, name: str, history: Sequence[int], within: Callable[[], float]) -> None:
        """Opens the sequence there under a name from `begin`; `within` returns the timeout of a call, in seconds.

        Raises SpecpairError, also for a process that was not checked yet.
        """
        instance_id = await link.peer.open(name, history, self._prompt_length, self._options, within())
        await link.confirm(instance_id, within())

    async def fork(self, link: LinkT, name: str, original: str, length: int, within: Callable[[], float]) -> None:
        """As `open`, but as a fork of the first `length` tokens of another opening."""
        instance_id = await link.peer.fork(original, name, length, self._options.sampling, within())
        await link.confirm(instance_id, within())

    async def end_at(self, link: LinkT, within: float) -> None:
        """Closes the openings at one instance before the next one there needs their place. Raises SpecpairError."""
        for name in [name for known, name in self._known if known is link]:
            await link.peer.close_sequence(name, within)
            self._forget(link, name)

    def owe_at(self, link: LinkT) -> None:
        """Closes the openings at one instance in the background, once it can be reached."""
        for name in [name for known, name in self._known if known is link]:
            self.owe(link, name)

    def owe(self, link: LinkT, name: str) -> None:
        """The same of one opening."""
        link.owe_close(name)
        self._forget(link, name)

    async def end(self) -> None:
        """Closes all openings: now, or in the background where that does not succeed at once."""
        self._has_ended = True
        await asyncio.gather(*(link.close_sequence(name) for link, name in self._known))

    def _forget(self, link: LinkT, name: str) -> None:
        self._known = [entry for entry in self._known if entry != (link, name)]
