"""What work ahead did, as plain numbers."""

from collections import Counter
from enum import StrEnum

from specpair.engine.statistics import Tally

READY_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)
MOST_ACCEPTED = 63
"""Larger counts are counted as this one, so that labels are bounded."""


class Result(StrEnum):
    """What a call found that came after work ahead."""

    HIT = "hit"
    """Its proposal was ready."""
    LATE = "late"
    """Its proposal was under way."""
    MISS = "miss"
    """Other proposals had been prepared."""


class AheadCounts:
    """Counts since the service started. Written on the event loop."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[Result, int]] = Counter()
        """Calls after work ahead, by result and accepted count."""
        self.blocks: Counter[str] = Counter()
        """Proposals that were begun, by what became of them: `used`, `unused` (ready, for another outcome), `dropped`
        before they were ready, `failed`."""
        self.tokens = 0
        """Tokens drawn for them, used or not."""
        self.ready = Tally(READY_BOUNDS)
        """Proposals that were ready when the next call came."""

    def add_call(self, result: Result, accepted_count: int) -> None:
        """Counts a call after work ahead."""
        self.calls[result, min(accepted_count, MOST_ACCEPTED)] += 1
