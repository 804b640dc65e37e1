"""One sequence at the draft, which may fail at any time without harm."""

import asyncio
import logging
import time
from collections.abc import Sequence

from coordinator.draft_link import DraftLink
from coordinator.peer import AWAY, LOST, Proposed
from specpair.errors import InvalidDistributionError, InvalidFieldError, PeerUnavailableError, SpecpairError
from specpair.options import SequenceOptions

CLOSE_TIMEOUT = 5.0
MOST_USUAL_BACKLOG = 32
"""Committed tokens that the draft feeds beside its steps at little cost."""

logger = logging.getLogger(__name__)


class DraftSession:
    """Gets proposals, or None: then the round goes without."""

    def __init__(self, link: DraftLink, sequence_id: str, prompt_length: int, options: SequenceOptions):
        self._link = link
        self._sequence_id = sequence_id
        self._prompt_length = prompt_length
        self._options = options
        self._held_length = 0
        """Committed tokens that the draft holds; 0 if it has to be opened."""
        self._was_opened = False
        """Whether it was opened since the last proposal."""
        self.is_usual = True
        """Whether the last proposal took as long as others do: it opened nothing, and had few tokens to catch up."""
        self._opening: asyncio.Task[None] | None = None
        self._quiet_until = 0.0
        self._lock = asyncio.Lock()
        """Held by the call under way: a sequence is not forked in the middle of one."""

    def start(self, history: Sequence[int], original: "DraftSession | None" = None) -> bool:
        """Opens the sequence on the side, as a copy of another's prompt if that one was opened.

        No token waits for the draft. Returns whether it could be asked.
        """
        if self._opening is not None:
            return True
        if not self._is_usable or self.room(len(history)) <= 0:
            return False
        tokens = list(history)
        copied = original if original is not None and original._is_begun else None
        self._opening = asyncio.create_task(self._open(tokens) if copied is None else self._fork(copied, tokens))
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
    def _is_begun(self) -> bool:
        return self._held_length > 0 or self._opening is not None

    @property
    def _is_usable(self) -> bool:
        return self._link.is_usable and time.monotonic() >= self._quiet_until

    @property
    def is_known(self) -> bool:
        """Whether the draft's limits are known: not before its first check, nor after it was restarted."""
        return self._link.info is not None

    def room(self, length: int) -> int:
        """Most tokens that the draft can propose behind `length` tokens."""
        info = self._link.info
        return 0 if info is None else min(info.max_num_speculative_tokens, info.max_model_len - length - 1)

    async def propose(
        self, step: int, history: Sequence[int], count: int, min_confidence: float = 0.0
    ) -> Proposed | None:
        """Up to `count` tokens behind the history; None if the draft has none to give at present."""
        if not self._is_usable:
            return None
        try:
            async with asyncio.timeout(self._link.timeout):
                return await self._propose(step, history, count, min_confidence)
        except TimeoutError:
            self._link.leave_alone(PeerUnavailableError(f"no proposal within {self._link.timeout:g} s"))
        except AWAY as error:
            self._link.leave_alone(error)
        except SpecpairError as error:
            self.leave_alone(error)
        return None

    def leave_alone(self, error: SpecpairError) -> None:
        """After a failure of this sequence alone: for the cool-down, or for good if its tokens are no good there."""
        logger.warning("the draft failed: %s", error.message, extra={"sequence_id": self._sequence_id})
        is_final = isinstance(error, InvalidFieldError) and not isinstance(error, InvalidDistributionError)
        self._quiet_until = float("inf") if is_final else time.monotonic() + self._link.cooldown

    async def close(self) -> None:
        """Gives the blocks back. A draft that is away has lost them anyway."""
        try:
            if self._opening is not None:
                await self._opening
        except SpecpairError as error:
            logger.debug("opening at the draft failed: %s", error.message)
        async with self._lock:
            try:
                await self._link.peer.close_sequence(self._sequence_id, CLOSE_TIMEOUT)
            except SpecpairError as error:
                logger.debug("closing at the draft failed: %s", error.message)

    async def _propose(self, step: int, history: Sequence[int], count: int, min_confidence: float) -> Proposed:
        await self._finish_opening()
        async with self._lock:
            if self._held_length:
                try:
                    return await self._ask(step, history, count, min_confidence)
                except LOST as error:
                    logger.info("opening the draft again: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(history)
            return await self._ask(step, history, count, min_confidence)

    async def _ask(self, step: int, history: Sequence[int], count: int, min_confidence: float) -> Proposed:
        held = self._held_length
        self.is_usual = not self._was_opened and self.backlog(len(history)) <= MOST_USUAL_BACKLOG
        self._was_opened = False
        proposed = await self._link.peer.propose(
            self._sequence_id, step, held, history[held:], count, self._link.timeout, min_confidence
        )
        self._held_length = len(history)
        self._link.welcome()
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

    async def _reopen(self, history: Sequence[int]) -> None:
        self._held_length = 0
        await self._link.peer.close_sequence(self._sequence_id, self._link.timeout)
        await self._open(history)

    async def _open(self, history: Sequence[int]) -> None:
        instance_id = await self._link.peer.open(
            self._sequence_id, history, self._prompt_length, self._options, self._link.timeout
        )
        self._link.confirm(instance_id)
        self._held_length = len(history)
        self._was_opened = True

    async def _fork(self, original: "DraftSession", prompt: Sequence[int]) -> None:
        """Opens the sequence as a copy of another's prompt; by itself if that is not to be had."""
        try:
            await original._finish_opening()
            async with original._lock:
                instance_id = await self._link.peer.fork(
                    original._sequence_id, self._sequence_id, len(prompt), self._options.sampling, self._link.timeout
                )
            self._link.confirm(instance_id)
            self._held_length = len(prompt)
            self._was_opened = True
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(prompt)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks an error as seen: whoever needs the task meets it there."""
    if not task.cancelled():
        task.exception()
