"""Makes forward passes take at least a given time, to imitate a slower device in benchmarks.

The time of a pass includes what is done with its logits, such as drawing a token: on a GPU both are one piece of work.
The rest of the time the device thread sleeps, so that several paced processes can share a processor. It sleeps first,
as long as it can tell that there will be time for the work: a device works by itself, while the processor has the
answers of the pass before to send.
"""

import time
from collections import deque
from collections.abc import Callable

from specpair.engine_config import Pace

REMEMBERED = 8
"""Passes whose work says how long that of the next one takes."""
CAUTION = 1.5
"""The time that is left for the work, as a multiple of the longest of theirs."""
LEAST_SLEEP = 0.004
"""Seconds. A shorter sleep is not worth waking up for."""


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
        self._worked: deque[float] = deque(maxlen=REMEMBERED)
        """Seconds that the last passes worked."""
        self._began_to_work = 0.0

    def begin(self, token_count: int) -> None:
        """Called when a pass begins that feeds `token_count` tokens."""
        seconds = self.pace.of_pass(token_count)
        self.due = self._clock() + seconds
        early = seconds - CAUTION * max(self._worked, default=seconds)
        if early >= LEAST_SLEEP:
            self._sleep(early)
        self._began_to_work = self._clock()

    def end(self) -> None:
        """Sleeps until the pass has taken its time."""
        now = self._clock()
        self._worked.append(now - self._began_to_work)
        if now < self.due:
            self._sleep(self.due - now)
