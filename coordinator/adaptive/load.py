"""The load: all outputs that are being generated."""

from coordinator.adaptive.running_mean import RunningMean

TOKENS_MEMORY = 16
"""Rounds over which the tokens of an output's rounds are averaged."""


class Load:
    """Sums over all outputs, those with a fixed number of proposed tokens included."""

    def __init__(self) -> None:
        self.output_count = 0
        self.row_count = 0
        """Their rows in the target's passes: for each output, the tokens last proposed and one more."""
        self.tokens = 0.0
        """Tokens that a round of each commits, together."""
        self.cached_count = 0
        """Tokens of their texts, prompts included, which each pass reads from the target's cache."""
        self.proposing_count = 0
        """Outputs with more than one row."""
        self.promised_count = 0
        """Outputs whose next round was promised to the target to be plain: the target begins that round by itself, and
        they wait for no other output."""

    @property
    def level(self) -> int:
        """0 for one output, 1 for two, then one more for each doubling."""
        return (max(self.output_count, 1) - 1).bit_length()


class Contribution:
    """The share of one output in the load, until it leaves."""

    def __init__(self, load: Load):
        self._load = load
        self._cached_count = 0
        self._is_promised = False
        self.row_count = 1
        self.tokens = 1.0
        """Mean of its recent rounds."""
        self._tokens = RunningMean(TOKENS_MEMORY)
        load.output_count += 1
        load.row_count += 1
        load.tokens += 1.0

    def set_row_count(self, count: int) -> None:
        self._load.row_count += count - self.row_count
        self._load.proposing_count += (count > 1) - (self.row_count > 1)
        self.row_count = count

    def add(self, tokens: int) -> None:
        """Adds a round that committed `tokens` tokens."""
        self._tokens.add(tokens)
        self._set_tokens(self._tokens.value)

    def leave(self) -> None:
        self._set_tokens(0.0)
        self.set_cached_count(0)
        self.set_row_count(0)
        self.set_promised(is_promised=False)
        self._load.output_count -= 1

    def set_cached_count(self, count: int) -> None:
        """Sets the tokens that the target has of its text."""
        self._load.cached_count += count - self._cached_count
        self._cached_count = count

    def set_promised(self, *, is_promised: bool) -> None:
        """Sets whether its next round was promised to be plain."""
        self._load.promised_count += is_promised - self._is_promised
        self._is_promised = is_promised

    def _set_tokens(self, tokens: float) -> None:
        self._load.tokens += tokens - self.tokens
        self.tokens = tokens
