"""How many rows work ahead may have: fewer while proposals come late, since each row delays the others. Pure.

Rows beside others cost nothing where a device waits for weights, and much where its processors are the limit. Which it
is shows in what calls find: a proposal that was being drawn still. The most rows with which few are late are learnt as
the size of a window is in TCP: a late one takes a share away, each one in time gives a little back.
"""

SHRINK = 0.93
GROWTH = 1.004
"""Together they are in balance where one proposal in 18 is late."""
LEAST_EACH = 2
"""Rows that each sequence keeps: the likeliest outcomes come late if they come with none beside them."""


class Allowance:
    """The rows of all sequences together."""

    def __init__(self, most: int):
        self.most = most
        """Never more than these."""
        self._rows = float(most)

    def rows(self, sequence_count: int) -> int:
        """How many rows so many sequences may have."""
        return min(max(int(self._rows), LEAST_EACH * sequence_count), self.most)

    def note_late(self, row_count: int) -> None:
        """Notes a proposal that came late while there were so many rows."""
        self._rows = max(min(self._rows, row_count) * SHRINK, 1.0)

    def note_in_time(self) -> None:
        """Notes a call for which whatever was prepared was ready."""
        self._rows = min(self._rows * GROWTH, float(self.most))
