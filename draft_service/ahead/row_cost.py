"""What a prepared proposal costs the sequences that work ahead: it is drawn, sent and read before others are."""

import time

ALONE_SECONDS = 0.0002
"""What it costs a sequence alone. More on a slower processor was 3 % slower there: nobody else is delayed."""
LOOPS = 3_500
"""Turns of the loop that take as long as it delays each further sequence: found with eight requests on a processor that
needs 0.2 ms for them (Zen 5). On a slower one fewer proposals are prepared: their share of Python takes longer, too."""
BYTES = 48 * 1024
"""A proposal of so many bytes costs twice as much as a small one: rows of counts are drawn, copied and sent on. Of 16,
48 and 1,000 KB this was the best with one request under the block rule (Zen 4, K = 6 and 10)."""
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

    def seconds(self, sequence_count: int, proposal_bytes: int = 0) -> float:
        """Of so many sequences together, if a proposal has so many bytes. Takes a tenth of a millisecond now and
        then."""
        now = time.monotonic()
        if now - self._measured_at >= INTERVAL:
            self._measured_at = now
            self._seconds += (_loop_seconds() - self._seconds) / MEMORY
        return (ALONE_SECONDS + (sequence_count - 1) * PART * self._seconds) * (1.0 + proposal_bytes / BYTES)


def _loop_seconds() -> float:
    start, held, total = time.thread_time(), dict[int, int](), 0
    for i in range(LOOPS // PART):
        held[i & 255] = i
        total += len(held) ^ [i, total][0]
    return time.thread_time() - start
