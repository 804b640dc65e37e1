"""How long passes of about so many tokens take: rows often cost nothing up to some number, and much beyond it.

A line through all passes does not show that: where processors wait for weights, or a pace is kept, the time is level
first.
"""

from bisect import bisect_left

MEMORY = 32
"""Passes of a size over which their time is averaged."""
MOST_LATE = 4.0
"""A pass counts as at most this many times the usual one of its size: anything may stall on a shared machine."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Passes of up to so many tokens, and more than the size before, are taken to be alike."""


class PassTimes:
    """Written by the device thread, may be read by any."""

    def __init__(self) -> None:
        self._counts = [0] * len(SIZES)
        self._seconds = [0.0] * len(SIZES)

    def add(self, token_count: int, seconds: float) -> None:
        """Notes a pass; those of more tokens than the last size are left out."""
        size = bisect_left(SIZES, token_count)
        if size == len(SIZES):
            return
        if self._counts[size]:
            seconds = min(seconds, MOST_LATE * self._seconds[size])
        self._counts[size] += 1
        self._seconds[size] += (seconds - self._seconds[size]) / min(self._counts[size], MEMORY)

    def seconds(self, token_count: int) -> float:
        """The time of a pass of this size; 0 if none was seen."""
        size = bisect_left(SIZES, token_count)
        return self._seconds[size] if size < len(SIZES) else 0.0

    def within(self, token_count: int, factor: float) -> int:
        """Tokens of the largest pass that takes at most `factor` times one of `token_count`; 0 if none was seen of its
        size. Sizes up to it take no longer."""
        found, most = 0, factor * self.seconds(token_count)
        if most > 0.0:
            for size in range(bisect_left(SIZES, token_count), len(SIZES)):
                if self._counts[size] and self._seconds[size] > most:
                    break
                found = SIZES[size] if self._counts[size] else found
        return found
