"""Opens one sequence at a draft in the background: no token waits for it."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from coordinator.peers.drafts import DraftLink
from coordinator.peers.failures import LOST
from coordinator.peers.openings import Openings
from specpair.errors import SpecpairError

MOST_USUAL_BACKLOG = 32
"""Committed tokens that the draft can feed along with its steps at little cost."""

logger = logging.getLogger(__name__)


class DraftOpening:
    """The draft that holds the sequence, its name there, and how many tokens are held."""

    def __init__(self, openings: Openings[DraftLink], within: Callable[[], float]):
        """`within` returns the timeout of a call made now, in seconds."""
        self.sequence_id = openings.sequence_id
        self.link: DraftLink | None = None
        """Where the sequence is, or is being opened."""
        self.name = ""
        """Its name there; empty before it is opened."""
        self.held_length = 0
        """Committed tokens that the draft holds; 0 if the sequence has to be opened."""
        self.lock = asyncio.Lock()
        """Held during a call, so that the sequence is not forked in the middle of one."""
        self._openings = openings
        self._within = within
        self._was_opened = False
        """Whether the sequence was opened since the last proposal."""
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Openings under way, also at drafts that the sequence has left."""
        self._reopened_at: DraftLink | None = None
        """Where a call opens the sequence again at present."""

    @property
    def is_under_way(self) -> bool:
        """Whether an opening was started and its result not yet taken, or a call opens the sequence again."""
        return self._task is not None or (self._reopened_at is not None and self._reopened_at is self.link)

    @property
    def is_begun(self) -> bool:
        return self.held_length > 0 or self.is_under_way

    @property
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for the opening. A failed opening shows in the proposal."""
        return self.held_length > 0 or (self._task is not None and self._task.done())

    def is_usual(self, length: int) -> bool:
        """Whether a proposal after `length` tokens has a typical cost: no opening, few tokens to catch up."""
        return not self._was_opened and length - self.held_length <= MOST_USUAL_BACKLOG

    def enter(self, link: DraftLink) -> None:
        """Moves the sequence to this draft; it leaves the previous one, where it is closed in the background."""
        if self.link is not None:
            self._openings.owe_at(self.link)
        self._leave()
        self.link, self.name, self.held_length, self._task = link, "", 0, None
        link.sequence_count += 1

    def start(self, link: DraftLink, history: Sequence[int], original: "DraftOpening | None") -> None:
        """Opens the sequence in the background, as a fork of the original's prompt if there is one."""
        work = self._open(link, history) if original is None else self._fork(link, original, history)
        self._task = asyncio.create_task(work)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)
        self._task.add_done_callback(_retrieve)

    async def finish(self) -> None:
        """Waits for the opening; cancelling the wait does not cancel the opening."""
        task = self._task
        if task is None:
            return
        try:
            await asyncio.shield(task)
        except LOST as error:
            logger.debug("opening the sequence at the draft failed: %s", error.message)
        finally:
            if task.done():
                self._task = None

    async def has_opened(self) -> bool:
        """Whether the draft holds the sequence, after the opening. A failure is left for the proposal to find."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if task.cancelled() or task.exception() is not None:
                return False
            self._task = None if self._task is task else self._task
        return self.held_length > 0

    async def reopen(self, link: DraftLink, history: Sequence[int]) -> None:
        """Closes what the draft holds and opens the sequence again."""
        self.held_length, self._reopened_at = 0, link
        try:
            await self._openings.end_at(link, self._within())
            await self._open(link, history)
        finally:
            if self._reopened_at is link:  # else it is opened at another draft by now
                self._reopened_at = None

    def use(self) -> None:
        """Notes a proposal: after it, an earlier opening no longer makes the cost untypical."""
        self._was_opened = False

    async def close(self) -> None:
        """Closes the sequence, which frees its cache blocks, however its opening ended."""
        try:
            if self._task is not None:
                await self._task
        except SpecpairError as error:
            logger.debug("opening the sequence at the draft failed: %s", error.message)
        except Exception:
            logger.exception("opening the sequence at the draft failed")
        async with self.lock:
            self._leave()
            await self._openings.end()

    def _leave(self) -> None:
        if self.link is not None:
            self.link.sequence_count -= 1
            self.link = None

    async def _open(self, link: DraftLink, history: Sequence[int]) -> None:
        with self._begun(link) as name:
            await self._openings.open(link, name, history, self._within)
            self._note_held(name, len(history))

    async def _fork(self, link: DraftLink, original: "DraftOpening", prompt: Sequence[int]) -> None:
        """Opens the sequence as a fork of another's prompt; if that fails, opens it by itself."""
        try:
            with self._begun(link) as name:
                await original.finish()
                async with original.lock:
                    await self._openings.fork(link, name, original.name, len(prompt), self._within)
                self._note_held(name, len(prompt))
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self.sequence_id})
            if link is self.link:  # otherwise it was left meanwhile, and is held elsewhere
                await self.reopen(link, prompt)

    @contextmanager
    def _begun(self, link: DraftLink) -> Iterator[str]:
        """The name of a new opening. It becomes the current one unless the sequence has moved elsewhere. If it is not
        the current one at its end, it is closed then: a close before may have come too early to find it."""
        name = self._openings.begin(link)
        if link is self.link:
            self.name = name
        try:
            yield name
        finally:
            if name != self.name:
                self._openings.owe(link, name)

    def _note_held(self, name: str, length: int) -> None:
        """Notes a finished opening, unless a newer one is current."""
        if name == self.name:
            self.held_length = length
            self._was_opened = True


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks an error as retrieved: the code that awaits the task gets it as well."""
    if not task.cancelled():
        task.exception()
