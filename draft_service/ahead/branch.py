"""A proposal that is prepared for one outcome."""

import asyncio
from dataclasses import dataclass

from draft_service.ahead.outcomes import Outcome
from draft_service.drafters.model import ProposeWork
from specpair.sequences.sequence import Sequence


@dataclass(eq=False, kw_only=True)
class Branch:
    """The work for one outcome, on a sequence of its own."""

    outcome: Outcome
    work: ProposeWork
    future: "asyncio.Future[None]"

    @property
    def sequence(self) -> Sequence:
        return self.work.sequence

    @property
    def is_ready(self) -> bool:
        """Whether it is done, without an error."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a proposal."""
        return self.future.done() and not self.is_ready
