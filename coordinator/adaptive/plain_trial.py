"""Trials of plain decoding: from time to time all outputs run some rounds without proposals, to compare speeds."""

from collections import deque
from collections.abc import Collection
from statistics import fmean

FIRST_INTERVAL, LAST_INTERVAL = 16, 512
"""Rounds with proposals between trials, for each output."""
ROUNDS = 8
"""Rounds of each output in a trial that are measured."""
MOST_SETTLING = 16
"""Rounds of each output before them that are left out, at most, while others still propose: where some always do, such
rounds are measured, too."""
FIRST_HOLD, LAST_HOLD = 32, 2048
"""Rounds of each output for which proposals stay off after they lost a trial; doubled with each trial lost in a row,
because a single one may only show that the machine's speed has changed."""
MARGIN = 0.98
CLEAR_GAIN = 1.25
"""Gain above which the next trial can wait longest."""
MEMORY = 256
"""Rounds before a trial that it is compared with: few, because the machine's speed may change."""
TRIM = 0.1
"""Share of the shortest and of the longest rounds to leave out: one stalled pass delays every output in it."""


class PlainTrial:
    """Compares the speed of all outputs together with and without proposals.

    Each output decides by what its own proposals gain and what their rows cost the others. Other effects between
    outputs (a draft on the same processor; batches split because outputs come at different times) show only here: if
    proposals lose, all outputs go without them for a while.
    """

    def __init__(self) -> None:
        self._interval = FIRST_INTERVAL
        self._since = 0
        self._settling = 0
        self._left = 0
        self._hold = FIRST_HOLD
        self._held = 0
        self._plain: list[float] = []
        """Times of the rounds of a trial."""
        self._elapsed: deque[float] = deque(maxlen=MEMORY)
        """Times of the rounds before the trial, and below the tokens expected of them."""
        self._tokens: deque[float] = deque(maxlen=MEMORY)

    @property
    def is_on(self) -> bool:
        """Whether proposals are off for all outputs."""
        return self._left > 0 or self._held > 0

    def rounds_left(self, load: int) -> int:
        """Rounds of each of `load` outputs for which proposals stay off; 0 if they are not."""
        return -(-(self._left or self._held) // load)

    @property
    def is_measuring(self) -> bool:
        """Whether proposals are off to measure rounds without them."""
        return self._left > 0 and not self._held

    def add(self, tokens: float, elapsed: float, load: int, *, was_asked: bool, is_settled: bool = True) -> None:
        """Adds a round that took `elapsed` and was expected to give `tokens` tokens, while `load` outputs ran.

        `is_settled` says whether nothing of a proposal is in its time: no output proposed when its call was made, nor
        did this one in the call before.
        """
        if self._held:
            self._held -= 1
        elif self._left:
            if was_asked:  # it was on its way when the trial began, as whole runs of a head may be, and beside others
                self._begin(load)
                return
            if not is_settled and self._settling:
                self._settling -= 1
                return
            self._left -= 1
            self._plain.append(elapsed)
            if not self._left and self._elapsed:
                self._judge(load)
        else:
            self._tokens.append(tokens)
            self._elapsed.append(elapsed)
            self._since += was_asked
            if self._since >= self._interval * load:
                self._begin(load)

    def _begin(self, load: int) -> None:
        self._since = 0
        self._settling, self._left = MOST_SETTLING * load, ROUNDS * load
        self._plain.clear()

    def _judge(self, load: int) -> None:
        gain = fmean(self._tokens) / trimmed_mean(self._elapsed) * trimmed_mean(self._plain)
        if gain < MARGIN:
            self._held = self._hold * load
            self._hold = min(2 * self._hold, LAST_HOLD)
            self._interval = FIRST_INTERVAL
        else:
            self._hold = FIRST_HOLD
            self._interval = LAST_INTERVAL if gain > CLEAR_GAIN else min(2 * self._interval, LAST_INTERVAL)
        self._tokens.clear()
        self._elapsed.clear()


def trimmed_mean(values: Collection[float]) -> float:
    """The mean without the smallest and largest values (TRIM of each)."""
    cut = int(TRIM * len(values))
    return fmean(sorted(values)[cut : len(values) - cut])
