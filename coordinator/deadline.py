"""Until when an answer is wanted."""

import math
import time
from dataclasses import dataclass

GRAIN = 0.01
"""Seconds: no call keeps to its time more exactly than that."""
SHORTEST_CALL = 0.001


@dataclass(frozen=True, order=True)
class Deadline:
    """A moment. A client's is handed down to all that is done and waited for on its behalf. Times are in seconds."""

    at: float
    """By time.monotonic; infinity where there is none."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Time until then; 0 once it is over."""
        return max(self.at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether it has come, or is so near that a call which ran out of time did so for its sake."""
        return self.remaining < GRAIN

    def at_most(self, seconds: float) -> float:
        """What a call may take that is given so many seconds otherwise: never quite 0, which no call takes."""
        return max(min(seconds, self.remaining), SHORTEST_CALL)

    def or_after(self, seconds: float) -> "Deadline":
        """This one; where there is none, so many seconds from now."""
        return Deadline.after(seconds) if self == NEVER else self


NEVER = Deadline(math.inf)
