"""How long to wait before something that failed is tried again. Pure but for chance."""

import random
from dataclasses import dataclass

LEAST_SHARE = 0.5
"""Of a pause: the rest is left to chance, so that not all who wait come back at once."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Each pause is twice as long as the one before, a few times; then they stay as long. Times are in seconds."""

    first: float = 0.05
    most_doublings: int = 5
    """0 for pauses of one length, of whoever only looks whether something is there."""

    def longest_pause(self, failure_count: int) -> float:
        """The longest pause before the next try, after so many failures before the last one."""
        return self.first * 2 ** min(failure_count, self.most_doublings)

    def pause(self, failure_count: int = 0) -> float:
        """One to wait, drawn anew each time."""
        return self.longest_pause(failure_count) * random.uniform(LEAST_SHARE, 1.0)
