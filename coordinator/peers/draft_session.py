"""One sequence at a draft, which may fail at any time without harm."""

import asyncio
import logging
import time
from collections.abc import Sequence

from coordinator.deadline import NEVER, Deadline
from coordinator.peers.answers import Proposed
from coordinator.peers.breaker import MOST_DOUBLINGS
from coordinator.peers.draft_link import DraftLink
from coordinator.peers.drafts import Drafts
from coordinator.peers.failures import AWAY, LOST
from coordinator.peers.openings import Openings
from coordinator.peers.recovery import Recovery
from specpair.errors import InvalidDistributionError, InvalidFieldError, PeerUnavailableError, SpecpairError
from specpair.options import SequenceOptions

MOST_USUAL_BACKLOG = 32
"""Committed tokens that the draft feeds beside its steps at little cost."""

logger = logging.getLogger(__name__)


class DraftSession:
    """Gets proposals, or None: then the round goes without. A draft that fails is left for another, if there is one."""

    def __init__(
        self,
        drafts: Drafts,
        sequence_id: str,
        prompt_length: int,
        options: SequenceOptions,
        timeout: float,
        cooldown: float,
        deadline: Deadline = NEVER,
    ):
        """A proposal is waited for `timeout` seconds, unless the client's `deadline` is sooner; after a failure of its
        own the sequence goes without for `cooldown` seconds."""
        self._drafts = drafts
        self._sequence_id = sequence_id
        self._prompt_length = prompt_length
        self._options = options
        self._timeout = timeout
        self._cooldown = cooldown
        self._deadline = deadline
        self._link: DraftLink | None = None
        """Where the sequence is, or is being opened."""
        self._openings = Openings[DraftLink](sequence_id)
        self._name = ""
        """What it is called there; empty before it is opened."""
        self._held_length = 0
        """Committed tokens that the draft holds; 0 if it has to be opened."""
        self._was_opened = False
        """Whether it was opened since the last proposal."""
        self.is_usual = True
        """Whether the last proposal took as long as others do: it opened nothing, and had few tokens to catch up."""
        self._opening: asyncio.Task[None] | None = None
        self._opening_tasks: set[asyncio.Task[None]] = set()
        """Those under way, also at drafts that the sequence has left."""
        self._trial: asyncio.Task[Proposed | None] | None = None
        self._excuse_count = 0
        """Times that a draft was not blamed for an answer that did not come, since the last one that did."""
        self._quiet_until = 0.0
        self._lock = asyncio.Lock()
        """Held by the call under way: a sequence is not forked in the middle of one."""

    def start(self, history: Sequence[int], original: "DraftSession | None" = None) -> bool:
        """Opens the sequence on the side, as a copy of another's prompt if that one was opened.

        No token waits for the draft. Returns whether it could be asked.
        """
        if self._opening is not None:
            return True
        if time.monotonic() < self._quiet_until or self.room(len(history)) <= 0:
            return False
        copied = original if original is not None and original._is_begun else None
        link = self._place(history) if copied is None else copied._link
        if link is None or not link.is_usable:
            return False
        self._enter(link)
        tokens = list(history)
        opening = self._open(link, tokens) if copied is None else self._fork(link, copied, tokens)
        self._opening = asyncio.create_task(opening)
        self._opening_tasks.add(self._opening)
        self._opening.add_done_callback(self._opening_tasks.discard)
        self._opening.add_done_callback(_retrieve)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for an opening; one that failed shows in the proposal."""
        return self._held_length > 0 or (self._opening is not None and self._opening.done())

    def backlog(self, length: int) -> int:
        """Tokens of `length` that the draft does not hold."""
        return length - self._held_length

    @property
    def is_known(self) -> bool:
        """Whether the draft's limits are known: not before its first check, nor after it was restarted."""
        return self._drafts.info is not None

    def room(self, length: int) -> int:
        """Most tokens that the draft can propose behind `length` tokens."""
        if self._link is not None and self._link.info is not None:
            return self._link.room(length)
        return max((link.room(length) for link in self._drafts.links.values()), default=0)

    async def propose(
        self, step: int, history: Sequence[int], count: int, min_confidence: float = 0.0
    ) -> Proposed | None:
        """Up to `count` tokens behind the history; None if no draft has any to give at present.

        A draft that did not answer in time is tried again on the side: no round waits for it a second time. What such
        a trial proposes is dropped, whatever it is.
        """
        link = self._place(history)
        if link is None or time.monotonic() < self._quiet_until or self._deadline.is_over:
            return None
        self._enter(link)
        count = min(count, link.room(len(history)))  # another draft may be a shorter one
        if count <= 0:
            return None
        if link.breaker.is_closed and not self._excuse_count:
            return await self._try(link, step, history, count, min_confidence)
        if (self._trial is None or self._trial.done()) and link.breaker.admit():
            self._trial = asyncio.create_task(self._try(link, step, list(history), 1, 0.0))
        return None

    async def _try(
        self, link: DraftLink, step: int, history: Sequence[int], count: int, min_confidence: float
    ) -> Proposed | None:
        is_catching_up = self._was_opened or self.backlog(len(history)) > MOST_USUAL_BACKLOG
        start = time.monotonic()
        try:
            async with asyncio.timeout(self._within):
                return await self._propose(link, step, history, count, min_confidence)
        except TimeoutError:
            self._give_up(link, start, is_catching_up=is_catching_up)
        except AWAY as error:
            self._blame(link, error)
        except SpecpairError as error:
            link.welcome()
            self.leave_alone(error)
        return None

    def leave_alone(self, error: SpecpairError) -> None:
        """After a failure of this sequence alone: for the cool-down, or for good if its tokens are no good there."""
        logger.warning("the draft failed: %s", error.message, extra={"sequence_id": self._sequence_id})
        is_final = isinstance(error, InvalidFieldError) and not isinstance(error, InvalidDistributionError)
        self._quiet_until = float("inf") if is_final else time.monotonic() + self._cooldown

    async def close(self) -> None:
        """Gives the blocks back."""
        if self._trial is not None:
            self._trial.cancel()
        try:
            if self._opening is not None:
                await self._opening
        except SpecpairError as error:
            logger.debug("opening at the draft failed: %s", error.message)
        async with self._lock:
            if self._link is not None:
                self._link.sequence_count -= 1
                self._link = None
            await self._openings.end()

    @property
    def _is_begun(self) -> bool:
        return self._held_length > 0 or self._opening is not None

    def _place(self, history: Sequence[int]) -> DraftLink | None:
        """The draft to ask: the one that has the sequence as long as that may be asked, else another."""
        if self._link is not None and self._link.is_usable:
            return self._link
        return self._drafts.choose(history)

    def _enter(self, link: DraftLink) -> None:
        """The sequence is going to be at this draft."""
        if link is self._link:
            return
        if self._link is not None:
            self._link.sequence_count -= 1
            self._drafts.recoveries[Recovery.MOVED] += 1
            self._name, self._held_length, self._opening = "", 0, None
            if self._trial is not None:
                self._trial.cancel()  # no round waits for it, nor is another draft blamed for its time
        self._link = link
        link.sequence_count += 1

    def _give_up(self, link: DraftLink, start: float, *, is_catching_up: bool) -> None:
        """No proposal in time since `start`.

        A draft that had a long text to read first is slow with this sequence alone, if it answers others meanwhile; if
        there are none, that is believed once. The next pause of the sequence is twice as long.
        """
        error = PeerUnavailableError(f"no proposal within {self._timeout:g} s")
        is_alive = link.answered_at > start or not self._excuse_count
        if is_catching_up and link.is_there and is_alive:
            self.leave_alone(error)
            self._quiet_until = time.monotonic() + max(self._cooldown, self._timeout) * 2**self._excuse_count
            self._excuse_count = min(self._excuse_count + 1, MOST_DOUBLINGS)
        else:
            self._blame(link, error)

    def _blame(self, link: DraftLink, error: SpecpairError) -> None:
        """The draft did not answer; that of a client who has no more time to wait proves nothing."""
        if not self._deadline.is_over:
            link.fail(error)

    @property
    def _within(self) -> float:
        """What a call may take, in seconds."""
        return self._deadline.at_most(self._timeout)

    async def _propose(
        self, link: DraftLink, step: int, history: Sequence[int], count: int, min_confidence: float
    ) -> Proposed:
        await self._finish_opening()
        async with self._lock:
            if self._held_length:
                try:
                    return await self._ask(link, step, history, count, min_confidence)
                except LOST as error:
                    self._drafts.recoveries[Recovery.REOPENED] += 1
                    logger.info("opening the draft again: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(link, history)
            return await self._ask(link, step, history, count, min_confidence)

    async def _ask(
        self, link: DraftLink, step: int, history: Sequence[int], count: int, min_confidence: float
    ) -> Proposed:
        held = self._held_length
        self.is_usual = not self._was_opened and self.backlog(len(history)) <= MOST_USUAL_BACKLOG
        self._was_opened = False
        proposed = await link.peer.propose(self._name, step, held, history[held:], count, self._within, min_confidence)
        if link is self._link:
            self._held_length, self._excuse_count = len(history), 0
        link.welcome()
        return proposed

    async def _finish_opening(self) -> None:
        """Waits for the opening that `start` began; a wait that is cancelled leaves it going on."""
        opening = self._opening
        if opening is None:
            return
        try:
            await asyncio.shield(opening)
        except LOST as error:
            logger.debug("opening at the draft failed: %s", error.message)
        finally:
            if opening.done():
                self._opening = None

    async def _reopen(self, link: DraftLink, history: Sequence[int]) -> None:
        self._held_length = 0
        await self._openings.end_at(link, self._within)
        await self._open(link, history)

    async def _open(self, link: DraftLink, history: Sequence[int]) -> None:
        name = self._begin(link)
        instance_id = await link.peer.open(name, history, self._prompt_length, self._options, self._within)
        link.confirm(instance_id)
        self._note_held(name, len(history))

    async def _fork(self, link: DraftLink, original: "DraftSession", prompt: Sequence[int]) -> None:
        """Opens the sequence as a copy of another's prompt; by itself if that is not to be had."""
        name = self._begin(link)
        try:
            await original._finish_opening()
            async with original._lock:
                instance_id = await link.peer.fork(
                    original._name, name, len(prompt), self._options.sampling, self._within
                )
            link.confirm(instance_id)
            self._note_held(name, len(prompt))
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(link, prompt)

    def _begin(self, link: DraftLink) -> str:
        """The name of a new opening, which is the one that counts unless the sequence has gone elsewhere."""
        name = self._openings.begin(link)
        if link is self._link:
            self._name = name
        return name

    def _note_held(self, name: str, length: int) -> None:
        """An opening is done; unless it took so long that another one counts."""
        if name == self._name:
            self._held_length = length
            self._was_opened = True


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks an error as seen: whoever needs the task meets it there."""
    if not task.cancelled():
        task.exception()
