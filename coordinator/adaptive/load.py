"""The outputs that are generated at present."""

from coordinator.adaptive.draft_activity import DraftActivity


class Load:
    """All of them, those with a fixed number of proposed tokens included."""

    def __init__(self) -> None:
        self.output_count = 0
        self.adaptive_count = 0
        self.row_count = 0
        """Tokens that they have in the target's passes: those proposed last, and one more for each."""
        self.rate = 0.0
        """Tokens per microsecond of all of them."""
        self.draft_activity = DraftActivity()

    @property
    def level(self) -> int:
        """0 for one output, 1 for two, then one more for each doubling."""
        return (max(self.output_count, 1) - 1).bit_length()


class Place:
    """What one output adds to the load, until it leaves."""

    __slots__ = ("_is_adaptive", "_load", "_rate", "_row_count")

    def __init__(self, load: Load, *, is_adaptive: bool):
        self._load = load
        self._is_adaptive = is_adaptive
        self._row_count = 0
        self._rate = 0.0
        load.output_count += 1
        load.adaptive_count += is_adaptive

    @property
    def others_rate(self) -> float:
        """Tokens per microsecond of all others."""
        return max(self._load.rate - self._rate, 0.0)

    def set_row_count(self, count: int) -> None:
        self._load.row_count += count - self._row_count
        self._row_count = count

    def set_rate(self, rate: float) -> None:
        self._load.rate += rate - self._rate
        self._rate = rate

    def leave(self) -> None:
        self.set_row_count(0)
        self.set_rate(0.0)
        self._load.output_count -= 1
        self._load.adaptive_count -= self._is_adaptive
