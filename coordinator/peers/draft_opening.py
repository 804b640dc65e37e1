"""The opening of one sequence at a draft, which is done on the side: no token waits for it."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from coordinator.peers.drafts import DraftLink
from coordinator.peers.failures import LOST
from coordinator.peers.openings import Openings
from specpair.errors import SpecpairError

MOST_USUAL_BACKLOG = 32
"""Committed tokens that the draft feeds beside its steps at little cost."""

logger = logging.getLogger(__name__)


class DraftOpening:
    """Where the sequence is, by which name, and how much of it is held there."""

    def __init__(self, openings: Openings[DraftLink], within: Callable[[], float]):
        """`within` says what a call may take now, in seconds."""
        self.sequence_id = openings.sequence_id
        self.link: DraftLink | None = None
        """Where the sequence is, or is being opened."""
        self.name = ""
        """What it is called there; empty before it is opened."""
        self.held_length = 0
        """Committed tokens that the draft holds; 0 if it has to be opened."""
        self.lock = asyncio.Lock()
        """Held by the call under way: a sequence is not forked in the middle of one."""
        self._openings = openings
        self._within = within
        self._was_opened = False
        """Whether it was opened since the last proposal."""
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Those under way, also at drafts that the sequence has left."""

    @property
    def is_under_way(self) -> bool:
        """Whether it was started, and nobody has asked yet what came of it."""
        return self._task is not None

    @property
    def is_begun(self) -> bool:
        return self.held_length > 0 or self.is_under_way

    @property
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for it; one that failed shows in the proposal."""
        return self.held_length > 0 or (self._task is not None and self._task.done())

    def is_usual(self, length: int) -> bool:
        """Whether a proposal behind so many tokens costs what others do, with few tokens to catch up."""
        return not self._was_opened and length - self.held_length <= MOST_USUAL_BACKLOG

    def enter(self, link: DraftLink) -> None:
        """The sequence is going to be at this draft, and no longer where it was."""
        self._leave()
        self.link, self.name, self.held_length, self._task = link, "", 0, None
        link.sequence_count += 1

    def start(self, link: DraftLink, history: Sequence[int], original: "DraftOpening | None") -> None:
        """Opens the sequence on the side, as a copy of another's prompt if there is one."""
        work = self._open(link, history) if original is None else self._fork(link, original, history)
        self._task = asyncio.create_task(work)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)
        self._task.add_done_callback(_retrieve)

    async def finish(self) -> None:
        """Waits for what `start` began; a wait that is cancelled leaves it going on."""
        task = self._task
        if task is None:
            return
        try:
            await asyncio.shield(task)
        except LOST as error:
            logger.debug("opening at the draft failed: %s", error.message)
        finally:
            if task.done():
                self._task = None

    async def reopen(self, link: DraftLink, history: Sequence[int]) -> None:
        """Closes what is there and opens the sequence again."""
        self.held_length = 0
        await self._openings.end_at(link, self._within())
        await self._open(link, history)

    def use(self) -> None:
        """A proposal is asked for: what was opened before it is no excuse for the next one."""
        self._was_opened = False

    async def close(self) -> None:
        """Gives the blocks back."""
        try:
            if self._task is not None:
                await self._task
        except SpecpairError as error:
            logger.debug("opening at the draft failed: %s", error.message)
        async with self.lock:
            self._leave()
            await self._openings.end()

    def _leave(self) -> None:
        if self.link is not None:
            self.link.sequence_count -= 1
            self.link = None

    async def _open(self, link: DraftLink, history: Sequence[int]) -> None:
        name = self._begin(link)
        await self._openings.open(link, name, history, self._within)
        self._note_held(name, len(history))

    async def _fork(self, link: DraftLink, original: "DraftOpening", prompt: Sequence[int]) -> None:
        """Opens the sequence as a copy of another's prompt; by itself if that is not to be had."""
        name = self._begin(link)
        try:
            await original.finish()
            async with original.lock:
                await self._openings.fork(link, name, original.name, len(prompt), self._within)
            self._note_held(name, len(prompt))
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self.sequence_id})
            if link is self.link:  # otherwise it was left meanwhile, and is held elsewhere
                await self.reopen(link, prompt)

    def _begin(self, link: DraftLink) -> str:
        """The name of a new opening, which is the one that counts unless the sequence has gone elsewhere."""
        name = self._openings.begin(link)
        if link is self.link:
            self.name = name
        return name

    def _note_held(self, name: str, length: int) -> None:
        """An opening is done; unless it took so long that another one counts."""
        if name == self.name:
            self.held_length = length
            self._was_opened = True


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks an error as seen: whoever needs the task meets it there."""
    if not task.cancelled():
        task.exception()
