"""How long passes of about so many tokens take: rows often cost nothing up to some number, and much beyond it.

A line through all passes does not show that: where processors wait for weights, or a pace is kept, the time is level
first.
"""

from bisect import bisect_left

MEMORY = 32
"""Passes of a size over which their time is averaged, unless said otherwise."""
LATELY = 64
"""Passes after which the time of a size is no longer relied on for a decision on which depends whether it is seen: one
stalled pass would hold for ever."""
MOST_LATE = 4.0
"""A pass counts as at most this many times the usual one of its size: anything may stall on a shared machine."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Passes of up to so many tokens, and more than the size before, are taken to be alike."""


class PassTimes:
    """Written by the device thread, may be read by any."""

    def __init__(self, memory: int = MEMORY) -> None:
        """`memory` is the number of passes of a size over which their time is averaged."""
        self._memory = memory
        self._counts = [0] * len(SIZES)
        self._passes = 0
        """Of all sizes."""
        self._last = [-LATELY] * len(SIZES)
        """The number of the latest pass of each size."""
        self._tokens = [0.0] * len(SIZES)
        """Mean tokens of the passes of each size."""
        self._seconds = [0.0] * len(SIZES)

    def add(self, token_count: int, seconds: float) -> None:
        """Notes a pass; those of more tokens than the last size are left out."""
        size = bisect_left(SIZES, token_count)
        if size == len(SIZES):
            return
        if self._counts[size]:
            seconds = min(seconds, MOST_LATE * self._seconds[size])
        self._passes += 1
        self._last[size] = self._passes
        self._counts[size] += 1
        weight = 1.0 / min(self._counts[size], self._memory)
        self._tokens[size] += (token_count - self._tokens[size]) * weight
        self._seconds[size] += (seconds - self._seconds[size]) * weight

    def seconds(self, token_count: int) -> float:
        """The time of a pass of this size; 0 if none was seen."""
        size = bisect_left(SIZES, token_count)
        return self._seconds[size] if size < len(SIZES) else 0.0

    def between(self, token_count: int) -> float | None:
        """The time of a pass of so many tokens, by the nearest sizes that were seen lately, with fewer and with more;
        None if it is beyond them."""
        seen = [size for size, last in enumerate(self._last) if last > self._passes - LATELY]
        fewer = next((size for size in reversed(seen) if self._tokens[size] <= token_count), None)
        more = next((size for size in seen if self._tokens[size] >= token_count), None)
        if fewer is None or more is None:
            own = bisect_left(SIZES, token_count)
            return self._seconds[own] if own in seen else None
        low, high = self._tokens[fewer], self._tokens[more]
        share = (token_count - low) / (high - low) if high > low else 0.0
        return self._seconds[fewer] + share * (self._seconds[more] - self._seconds[fewer])

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
