"""A proposal that is prepared for one outcome."""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from draft_service.ahead.outcomes import Outcome
from draft_service.drafters.model import ProposeWork
from draft_service.proposal import Drafted
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence


@dataclass(eq=False, kw_only=True)
class Branch:
    """The work for one outcome, on a sequence of its own."""

    outcome: Outcome
    """Its token is unknown, a negative number, until the work has drawn it, if that does."""
    work: ProposeWork
    future: "asyncio.Future[None]"
    has_drawn_outcome: bool = False
    """Whether the first token that the work draws is the one of the outcome; the proposal is what follows it."""

    @property
    def count(self) -> int:
        """Tokens of the proposal, at most."""
        return self.work.count - self.has_drawn_outcome

    def drafted(self) -> Drafted:
        """The proposal, once it is there."""
        whole = self.work.drafted(was_prepared=True)
        if not self.has_drawn_outcome:
            return whole
        rows = {"counts": whole.counts[1:], "dense": whole.dense[1:], "outlooks": whole.outlooks[1:]}
        return replace(whole, tokens=whole.tokens[1:], **rows)

    @property
    def sequence(self) -> Sequence:
        return self.work.sequence

    @property
    def _has_ended(self) -> bool:
        """Whether the work is done without an error."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None

    @property
    def is_ready(self) -> bool:
        """Whether the proposal is there."""
        return self._has_ended and len(self.work.tokens) > self.has_drawn_outcome

    @property
    def has_begun(self) -> bool:
        """Whether it has the cache of its parent, which may then be dropped."""
        return self.work.parent is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a proposal."""
        return self.future.done() and not self.is_ready

    @property
    def end(self) -> Literal["unused", "dropped", "failed"]:
        """What becomes of it, if it is dropped now."""
        if not self.future.done():
            return "dropped"
        return "unused" if self._has_ended else "failed"


async def finished(branch: Branch, held: HeldSequence[Drafted]) -> Drafted | None:
    """The proposal of the branch that became the sequence, as soon as it is there; None, with no drafted tokens left,
    if it fails."""
    try:
        await branch.future
    except Exception:
        held.cached.replace_from(held.length, [])
        return None
    return branch.drafted()
