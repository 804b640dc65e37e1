"""Now and then all outputs go without proposals for a moment, to see what they would be without them."""

from collections import deque
from collections.abc import Collection
from statistics import fmean

FIRST_INTERVAL, LAST_INTERVAL = 16, 512
"""Rounds with proposals between trials, for each output."""
ROUNDS = 8
"""Rounds of each output in a trial."""
SETTLING = 2
"""The first of them, which still have the company of proposals if there are other outputs."""
HOLD = 256
"""Rounds of each output for which proposals stay off where they lost."""
MARGIN = 0.98
CLEAR_GAIN = 1.25
"""What proposals gain beyond which the next trial can wait."""
MEMORY = 256
"""Rounds before a trial with which it is compared: the machine may not have been the same for longer."""
TRIM = 0.1
"""Share of the shortest and of the longest rounds that are left out: one stall of a pass delays all that are in it."""


class PlainTrial:
    """Compares what the outputs gain together with what they would gain without proposals.

    Each of them decides by what its own proposals bring and what their rows cost the others. Whatever else they do to
    each other (a draft on the same processor; passes that fall apart because outputs come at different times) shows
    here alone: where proposals lose, all outputs go without them for a while.
    """

    def __init__(self) -> None:
        self._interval = FIRST_INTERVAL
        self._since = 0
        self._left = 0
        self._held = 0
        self._plain: list[float] = []
        """Microseconds of the rounds of a trial."""
        self._elapsed: deque[float] = deque(maxlen=MEMORY)
        """Those of the rounds before it, and the tokens that they could be expected to give."""
        self._tokens: deque[float] = deque(maxlen=MEMORY)

    @property
    def is_on(self) -> bool:
        """Whether no output may propose at present."""
        return self._left > 0 or self._held > 0

    def add(self, tokens: float, elapsed: float, load: int, *, was_asked: bool) -> None:
        """A round that can be expected to give so many tokens."""
        if self._held:
            self._held -= 1
        elif self._left:
            self._left -= 1
            if not was_asked and (load == 1 or self._left < (ROUNDS - SETTLING) * load):
                self._plain.append(elapsed)
            if not self._left and self._plain and self._elapsed:
                self._judge(load)
        else:
            self._tokens.append(tokens)
            self._elapsed.append(elapsed)
            self._since += was_asked
            if self._since >= self._interval * load:
                self._begin(load)

    def _begin(self, load: int) -> None:
        self._since = 0
        self._left = ROUNDS * load
        self._plain.clear()

    def _judge(self, load: int) -> None:
        gain = fmean(self._tokens) / trimmed_mean(self._elapsed) * trimmed_mean(self._plain)
        if gain < MARGIN:
            self._held = HOLD * load
            self._interval = FIRST_INTERVAL
        else:
            self._interval = LAST_INTERVAL if gain > CLEAR_GAIN else min(2 * self._interval, LAST_INTERVAL)
        self._tokens.clear()
        self._elapsed.clear()


def trimmed_mean(values: Collection[float]) -> float:
    """The mean without the shortest and the longest of them."""
    cut = int(TRIM * len(values))
    return fmean(sorted(values)[cut : len(values) - cut])
