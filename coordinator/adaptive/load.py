"""The load: all outputs that are being generated."""

from coordinator.adaptive.running_mean import RunningMean

RATE_MEMORY = 16
"""Rounds over which the speed of an output is averaged."""


class Load:
    """Sums over all outputs, those with a fixed number of proposed tokens included."""

    def __init__(self) -> None:
        self.output_count = 0
        self.row_count = 0
        """Their rows in the target's passes: for each output, the tokens last proposed and one more."""
        self.rate = 0.0
        """Tokens per unit of time of all outputs together."""

    @property
    def level(self) -> int:
        """0 for one output, 1 for two, then one more for each doubling."""
        return (max(self.output_count, 1) - 1).bit_length()


class Contribution:
    """The share of one output in the load, until it leaves."""

    def __init__(self, load: Load):
        self._load = load
        self._rate = 0.0
        self._row_count = 0
        self._tokens = RunningMean(RATE_MEMORY)
        self._period = RunningMean(RATE_MEMORY)
        load.output_count += 1

    @property
    def others_rate(self) -> float:
        """Tokens per unit of time of all other outputs."""
        return max(self._load.rate - self._rate, 0.0)

    def set_row_count(self, count: int) -> None:
        self._load.row_count += count - self._row_count
        self._row_count = count

    def add(self, tokens: int, period: float) -> None:
        """Adds a round that committed `tokens` tokens in `period` time."""
        self._tokens.add(tokens)
        self._period.add(period)
        if self._period.value > 0.0:
            self._set_rate(self._tokens.value / self._period.value)

    def leave(self) -> None:
        self._set_rate(0.0)
        self.set_row_count(0)
        self._load.output_count -= 1

    def _set_rate(self, rate: float) -> None:
        self._load.rate += rate - self._rate
        self._rate = rate
