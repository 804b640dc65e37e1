"""How many tokens the target gives in one answer where nothing is proposed. Pure."""

from dataclasses import dataclass


@dataclass
class RunLength:
    """The length of the next run: as many tokens as come within an interval, so that a client hardly notices that they
    come together.

    It depends on times and limits alone. An output is the same tokens in runs of any length.
    """

    interval: float
    """Seconds; 0 for single tokens."""
    promised: int = 0
    """The length that the target was told in advance; 0 if it was told none."""
    _pass_seconds: float = 0.0
    """Of each token of the last round without a proposal; 0 before the first."""

    def add(self, elapsed: float, token_count: int) -> None:
        """A round without a proposal gave so many tokens in `elapsed` seconds."""
        self._pass_seconds = elapsed / token_count

    def decide(self, longest: int) -> int:
        """The tokens to ask for, at most `longest` and at least one. What was promised holds."""
        wanted, self.promised = self.promised or self.usual, 0
        return max(min(wanted, longest), 1)

    @property
    def usual(self) -> int:
        """As many tokens as come within the interval; at least one."""
        return max(int(self.interval / self._pass_seconds), 1) if self._pass_seconds else 1
