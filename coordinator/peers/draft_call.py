"""One call for a proposal, with the opening that it may need."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.peers.ahead_blocks import AheadBlocks, Preparation
from coordinator.peers.answers import Proposed
from coordinator.peers.draft_opening import DraftOpening
from coordinator.peers.draft_trial import DraftTrial
from coordinator.peers.drafts import DraftLink
from coordinator.peers.failures import AWAY, LOST
from coordinator.peers.recovery import Recovery
from specpair.errors import BaseLengthMismatchError, SpecpairError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DraftCall:
    """The arguments of one call to a draft, and the objects that record its outcome."""

    opening: DraftOpening
    blocks: AheadBlocks
    trial: DraftTrial
    recoveries: dict[Recovery, int]
    link: DraftLink
    step: int
    history: Sequence[int]
    count: int
    """Most tokens to propose."""
    min_confidence: float = 0.0
    tree_tokens: int = 0
    """Most tokens of a tree; 0 for a chain."""
    preparation: Preparation | None = None
    """What the draft shall prepare for the next step; None if it shall not work ahead."""
    has_proposal: bool = False
    """Whether a prepared proposal is used: the call only tells the draft so."""
    is_plain: bool = False
    """Whether the round has no proposal: the call only tells the draft of the tokens."""

    async def answer(self) -> Proposed | None:
        """The draft's answer; None if the call failed, or had nothing to ask of a sequence that was opened again, or
        that has gone to another draft."""
        is_catching_up = not self.opening.is_usual(len(self.history))
        start = time.monotonic()
        try:
            async with asyncio.timeout(self.trial.within):
                return await self._propose()
        except TimeoutError:
            self.trial.give_up(self.link, start, is_catching_up=is_catching_up)
        except AWAY as error:
            self.trial.blame(self.link, error)
        except SpecpairError as error:
            self.link.welcome()
            self.trial.leave_alone(error)
        return None

    async def prepare(self) -> None:
        """Has the draft work ahead before it is asked for anything, once it is open. A failure counts for nothing: the
        next call says what is wrong."""
        if await self.opening.has_opened():
            self._tell()

    def tell(self) -> bool:
        """Tells the draft of the history, where its proposal is here already. Returns whether it was told: it is not
        while another call is under way, nor if the sequence has to be opened.

        Nobody learns whether it came. If it did not, the next call does: its sequence is shorter than said.
        """
        if not self._tell():
            return False
        self.opening.use()
        return True

    def _tell(self) -> bool:
        opening, held = self.opening, self.opening.held_length
        if self.link is not opening.link or not held or opening.is_under_way or opening.lock.locked():
            return False
        length = len(self.history)
        appended = self.history[held:]
        try:
            self.link.peer.tell(
                *(opening.name, self.step, held, appended, self.count, self.min_confidence, self.preparation),
                is_plain=self.is_plain,
            )
        except SpecpairError as error:
            logger.debug("the draft was not told: %s", error.message, extra={"sequence_id": opening.sequence_id})
            return False
        self._expect_blocks(length)
        opening.held_length = length
        return True

    @property
    def _is_left(self) -> bool:
        """Whether the sequence has gone to another draft: it is closed at this one, and not to be opened again."""
        return self.link is not self.opening.link

    async def _propose(self) -> Proposed | None:
        opening = self.opening
        await opening.finish()
        async with opening.lock:
            if opening.held_length and not self._is_left:
                try:
                    return await self._ask_again_if_shorter()
                except LOST as error:
                    if self._is_left:
                        return None
                    self.recoveries[Recovery.REOPENED] += 1
                    logger.info("reopening at the draft: %s", error.message, extra={"sequence_id": opening.sequence_id})
            if not self._is_left:
                await opening.reopen(self.link, self.history)
            return None if self.has_proposal or self._is_left else await self._ask()

    async def _ask_again_if_shorter(self) -> Proposed:
        """The answer, also if the draft was not reached by all that it was told: it says how many tokens it has."""
        try:
            return await self._ask()
        except BaseLengthMismatchError as error:
            if self._is_left or not 0 < error.held_length < self.opening.held_length:
                raise
            self.opening.held_length = error.held_length
            return await self._ask()

    async def _ask(self) -> Proposed:
        opening, held, length = self.opening, self.opening.held_length, len(self.history)  # it may grow meanwhile
        is_usual = opening.is_usual(length)
        opening.use()
        self._expect_blocks(length)
        proposed = await self._proposal(held)
        if self.link is opening.link:
            opening.held_length = length
            self.trial.succeed()
        self.link.welcome()
        return proposed if is_usual else replace(proposed, is_usual=False)

    async def _proposal(self, held: int) -> Proposed:
        """The answer of the draft, which holds `held` tokens."""
        return await self.link.peer.propose(
            self.opening.name,
            self.step,
            held,
            self.history[held:],
            self.count,
            self.trial.within,
            self.min_confidence,
            self.preparation,
            self.has_proposal,
            self.tree_tokens,
            is_plain=self.is_plain,
        )

    def _expect_blocks(self, length: int) -> None:
        """Expects the blocks that the call asks for, if it asks for any."""
        if self.preparation is not None:
            inbox, most = self.link.peer.inbox, self.preparation.max_outcomes
            self.blocks.expect(inbox, self.opening.name, self.step + 1, length, most)
