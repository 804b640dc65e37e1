"""How many rows of all sequences are prepared at a time: no more than are in time. Pure."""

LEVEL = 1.5
"""A pass that takes at most this many times one of a single row would be hardly shorter with fewer rows."""
LESS = 0.97
"""By what factor there are fewer rows after a proposal that was late."""
MORE = 1.0
"""Rows that are added for a proposal that was in time."""
LEAST = 24


class RowBudget:
    """Follows what calls find. A proposal that comes late is worth little more than none, and all proposals of a pass
    are late together, so where rows cost time fewer of them give more hits."""

    def __init__(self, most: int):
        self.most = most
        """The limit; 0: nothing is prepared."""
        self._wanted = float(most)

    @property
    def rows(self) -> int:
        return min(self.most, max(int(self._wanted), LEAST))

    def in_time(self) -> None:
        """A call had its proposal at hand."""
        self._wanted = min(self._wanted + MORE, float(self.most))

    def late(self, used: int, level: int) -> None:
        """A call had to wait for its proposal, while `used` rows were prepared; a pass of up to `level` rows would not
        have been shorter."""
        if used > level:
            self._wanted = max(LESS * min(self._wanted, used), level, LEAST)
