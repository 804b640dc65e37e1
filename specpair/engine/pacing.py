"""Makes forward passes take at least a given time, to imitate a slower device in benchmarks.

The time of a pass includes what is done with its logits, such as drawing a token: on a GPU both are one piece of work.
The rest of the time the device thread sleeps, so that several paced processes can share a processor.
"""

import time
from collections.abc import Callable

from specpair.engine_config import Pace


class Pacing:
    """The pace of one engine's passes. Device thread only."""

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.pace = pace
        self._clock = clock
        self._sleep = sleep
        self.due = 0.0
        """When the pass may end, by the clock."""

    def begin(self, token_count: int) -> None:
        """Called when a pass begins that feeds `token_count` tokens."""
        self.due = self._clock() + self.pace.of_pass(token_count)

    def end(self) -> None:
        """Sleeps until the pass has taken its time."""
        left = self.due - self._clock()
        if left > 0.0:
            self._sleep(left)
