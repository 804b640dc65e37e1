"""Back-off before a retry. Pure functions except for randomness."""

import random
from dataclasses import dataclass

LEAST_SHARE = 0.5
"""Smallest share of a pause that is waited. The rest is random, so that clients do not all retry at once."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off: each pause doubles, up to `most_doublings` times. Times are in seconds."""

    first: float = 0.05
    most_doublings: int = 5
    """0 for constant pauses, as for polling."""

    def longest_pause(self, failure_count: int) -> float:
        """The longest pause before the next try; `failure_count` counts the failures before the last one."""
        return self.first * 2 ** min(failure_count, self.most_doublings)

    def pause(self, failure_count: int = 0) -> float:
        """A random pause, drawn anew each time."""
        return self.longest_pause(failure_count) * random.uniform(LEAST_SHARE, 1.0)
