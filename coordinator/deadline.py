"""Deadlines of requests."""

import math
import time
from dataclasses import dataclass

GRAIN = 0.01
"""Seconds: the precision with which calls keep their timeouts."""
SHORTEST_CALL = 0.001


@dataclass(frozen=True, order=True)
class Deadline:
    """A moment. A client's deadline limits every call and wait on its behalf. Times are in seconds."""

    at: float
    """By time.monotonic; infinity without a deadline."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """A deadline `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(self.at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether it has passed, or is so near (GRAIN) that a call which timed out did so because of it."""
        return self.remaining < GRAIN

    def at_most(self, seconds: float) -> float:
        """A call's timeout: `seconds`, or less if the deadline is sooner. Never 0, which is not a valid timeout."""
        return max(min(seconds, self.remaining), SHORTEST_CALL)

    def or_after(self, seconds: float) -> "Deadline":
        """This deadline; without one, `seconds` from now."""
        return Deadline.after(seconds) if self == NEVER else self


NEVER = Deadline(math.inf)
