"""Work ahead of all sequences of a draft model."""

import asyncio

from draft_service.ahead.branch import Branch
from draft_service.ahead.generation import BranchEngine, Generation
from draft_service.proposal import AheadOrder, Deliver, Drafted, ProposeCall
from specpair.errors import ShuttingDownError
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence

DEFAULT_ROWS = 64


class WorkAhead:
    """The generations of all sequences. Runs on the event loop."""

    def __init__(self, engine: BranchEngine):
        self._engine = engine
        self.max_rows = DEFAULT_ROWS
        """Most outcomes of all sequences together that are prepared at a time."""
        self._generations: dict[Sequence, Generation] = {}
        """By the main sequence."""

    def __len__(self) -> int:
        return len(self._generations)

    def begin(
        self, held: HeldSequence[Drafted], call: ProposeCall, drafted: Drafted, order: AheadOrder, deliver: Deliver
    ) -> None:
        """Prepares the step after `call`, if that is still the last one of its sequence. A repeated call gets once more
        what is ready."""
        if not self.max_rows or held.last_step != call.step or held.is_busy or not held.is_open or not drafted.tokens:
            return
        known = self._generations.get(held.cached)
        if known is not None and known.step == call.step + 1:
            known.deliver_again(deliver)
            return
        self.drop(held.cached)
        share = max(1, self.max_rows // (len(self._generations) + 1))
        generation = Generation(self._engine, held, call, drafted, order, deliver, min(order.max_outcomes, share))
        self._generations[held.cached] = generation
        try:
            generation.begin()
        except ShuttingDownError:
            self.drop(held.cached)

    def claim(self, held: HeldSequence[Drafted], call: ProposeCall) -> Branch | None:
        """The branch for a call, which becomes the sequence; all others are dropped."""
        generation = self._generations.pop(held.cached, None)
        if generation is None:
            return None
        branch = generation.match(call)
        generation.end(kept=branch)
        if branch is None:
            return None
        old, branch.sequence.is_branch, branch.work.is_background = held.cached, False, False
        held.cached, held.length = branch.sequence, call.base_length + len(call.appended)
        self._engine.discard([old])
        return branch

    def drop(self, cached: Sequence) -> None:
        """Drops what was prepared for a sequence."""
        if (generation := self._generations.pop(cached, None)) is not None:
            generation.end()


async def finished(branch: Branch, held: HeldSequence[Drafted]) -> Drafted | None:
    """The proposal of a claimed branch, as soon as it is there; None, and no drafted tokens left, if it failed."""
    try:
        await branch.future
    except asyncio.CancelledError:
        raise
    except Exception:
        held.cached.replace_from(held.length, [])
        return None
    return branch.work.drafted(was_prepared=True)
