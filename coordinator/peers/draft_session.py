"""One sequence at a draft. The draft may fail at any time without harm to the output."""

from collections.abc import Sequence
from dataclasses import replace

from coordinator.deadline import NEVER, Deadline
from coordinator.peers.answers import Proposed
from coordinator.peers.draft_call import DraftCall
from coordinator.peers.draft_opening import DraftOpening
from coordinator.peers.draft_trial import DraftTrial
from coordinator.peers.drafts import DraftLink, Drafts
from coordinator.peers.openings import Openings
from coordinator.peers.recovery import Recovery
from specpair.errors import SpecpairError
from specpair.options import SequenceOptions


class DraftSession:
    """Gets proposals, or None for a round without one. If its draft fails, it moves to another, if there is one."""

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
        """A proposal has a timeout of `timeout` seconds, less if the client's `deadline` is sooner. After a failure of
        its own the sequence has no proposals for `cooldown` seconds."""
        self._drafts = drafts
        self._deadline = deadline
        self._trial = DraftTrial(sequence_id, timeout, cooldown, deadline)
        openings = Openings[DraftLink](sequence_id, prompt_length, options)
        self._opening = DraftOpening(openings, lambda: self._trial.within)

    def start(self, history: Sequence[int], original: "DraftSession | None" = None) -> bool:
        """Opens the sequence in the background, as a fork of the original's prompt if that one was opened.

        No token waits for the draft. Returns whether the opening could be started.
        """
        if self._opening.is_under_way:
            return True
        if self._trial.is_quiet or self.room(len(history)) <= 0:
            return False
        copied = None if original is None or not original._opening.is_begun else original._opening
        link = self._choose(history) if copied is None else copied.link
        if link is None or not link.is_usable:
            return False
        self._enter(link)
        self._opening.start(link, list(history), copied)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for an opening. A failed opening shows in the proposal."""
        return self._opening.is_ready

    @property
    def is_known(self) -> bool:
        """Whether the draft's limits are known: not before its first check, nor after it was restarted."""
        return self._drafts.info is not None

    def room(self, length: int) -> int:
        """The largest number of tokens that the draft can propose after `length` tokens."""
        link = self._opening.link
        if link is not None and link.info is not None:
            return link.room(length)
        return max((link.room(length) for link in self._drafts.links.values()), default=0)

    async def propose(
        self, step: int, history: Sequence[int], count: int, min_confidence: float = 0.0
    ) -> Proposed | None:
        """Up to `count` proposed tokens after the history; None if no draft can propose now."""
        link = self._choose(history)
        if link is None or self._trial.is_quiet or self._deadline.is_over:
            return None
        self._enter(link)
        count = min(count, link.room(len(history)))  # another draft may have a shorter context
        if count <= 0:
            return None
        call = DraftCall(
            opening=self._opening,
            trial=self._trial,
            recoveries=self._drafts.recoveries,
            link=link,
            step=step,
            history=history,
            count=count,
            min_confidence=min_confidence,
        )
        if link.breaker.is_closed and not self._trial.is_needed:
            return await call.answer()
        if not self._trial.is_under_way and link.breaker.admit():
            self._trial.start(replace(call, history=list(history), count=1, min_confidence=0.0).answer())
        return None

    def leave_alone(self, error: SpecpairError) -> None:
        """Stops asking after a failure of this sequence alone: for the cool-down, or for good if it is refused."""
        self._trial.leave_alone(error)

    async def close(self) -> None:
        """Gives the blocks back."""
        self._trial.cancel()
        await self._opening.close()

    def _choose(self, history: Sequence[int]) -> DraftLink | None:
        """The draft to ask: the one that holds the sequence if it is usable, else another."""
        link = self._opening.link
        return link if link is not None and link.is_usable else self._drafts.choose(history)

    def _enter(self, link: DraftLink) -> None:
        """Moves the sequence to this draft."""
        if link is self._opening.link:
            return
        if self._opening.link is not None:
            self._drafts.recoveries[Recovery.MOVED] += 1
            self._trial.cancel()
        self._opening.enter(link)
