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
        self._opening: asyncio.Task[None] | None = None
        self._quiet_until = 0.0
        self._lock = asyncio.Lock()
        """Held by the call under way: a sequence is not forked in the middle of one."""

    def start(self, history: Sequence[int], original: "DraftSession | None" = None) -> None:
        """Opens the sequence on the side, as a copy of another's prompt if there is one to copy.

        The first token does not wait for the draft.
        """
        if self._link.is_usable and self.room(len(history)) > 0:
            prompt = list(history)
            self._opening = asyncio.create_task(
                self._open(prompt) if original is None else self._fork(original, prompt)
            )
            self._opening.add_done_callback(_retrieve)

    @property
    def is_known(self) -> bool:
        """Whether the draft's limits are known: not before its first check, nor after it was restarted."""
        return self._link.info is not None

    def room(self, length: int) -> int:
        """Most tokens that the draft can propose behind `length` tokens."""
        info = self._link.info
        return 0 if info is None else min(info.max_num_speculative_tokens, info.max_model_len - length - 1)

    async def propose(self, step: int, history: Sequence[int], count: int) -> Proposed | None:
        """Up to `count` tokens behind the history; None if the draft has none to give at present."""
        if not self._link.is_usable or time.monotonic() < self._quiet_until:
            return None
        try:
            async with asyncio.timeout(self._link.timeout):
                return await self._propose(step, history, count)
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

    async def _propose(self, step: int, history: Sequence[int], count: int) -> Proposed:
        await self._finish_opening()
        async with self._lock:
            if self._held_length:
                try:
                    return await self._ask(step, history, count)
                except LOST as error:
                    logger.info("opening the draft again: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(history)
            return await self._ask(step, history, count)

    async def _ask(self, step: int, history: Sequence[int], count: int) -> Proposed:
        held = self._held_length
        proposed = await self._link.peer.propose(
            self._sequence_id, step, held, history[held:], count, self._link.timeout
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
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self._sequence_id})
            await self._reopen(prompt)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks an error as seen: whoever needs the task meets it there."""
    if not task.cancelled():
        task.exception()
