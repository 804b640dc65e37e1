"""What a prepared proposal costs the processors that draw, send and read it."""

import time

LOOPS = 3_500
"""Turns of the loop that take as long: found with eight requests on a processor that needs 0.2 ms for them (Zen 5). On
a slower one fewer proposals are prepared: what is Python in them takes longer by the same factor."""
PART = 4
"""The loop is run for one in so many of these turns."""
INTERVAL = 0.5
"""Seconds after which it is run again: a shared processor may become half as fast from one second to the next."""
MEMORY = 4
"""Runs over which the cost is averaged."""


class RowCost:
    """Follows the speed of this process's interpreter."""

    def __init__(self) -> None:
        self._seconds = min(_loop_seconds() for _ in range(MEMORY))
        self._measured_at = time.monotonic()

    def seconds(self) -> float:
        """Of processor time. Takes a tenth of a millisecond now and then."""
        now = time.monotonic()
        if now - self._measured_at >= INTERVAL:
            self._measured_at = now
            self._seconds += (_loop_seconds() - self._seconds) / MEMORY
        return PART * self._seconds


def _loop_seconds() -> float:
    start, held, total = time.thread_time(), dict[int, int](), 0
    for i in range(LOOPS // PART):
        held[i & 255] = i
        total += len(held) ^ [i, total][0]
    return time.thread_time() - start
