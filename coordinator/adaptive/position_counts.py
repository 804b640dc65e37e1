"""How often drafted tokens were accepted, by position."""

from collections.abc import Iterator, Sequence

CLASS_COUNT = 3
"""The first position, the second, and all behind it."""


class PositionCounts:
    """Decayed counts of trials and acceptances, each position given that those before it were accepted."""

    __slots__ = ("_keep", "accepted", "tried")

    def __init__(self, memory: float):
        self.tried = [0.0] * CLASS_COUNT
        self.accepted = [0.0] * CLASS_COUNT
        self._keep = 1.0 - 1.0 / memory

    def begin(self, rates: Sequence[float], count: float) -> None:
        """With so many trials at given rates."""
        self.tried = [count] * CLASS_COUNT
        self.accepted = [count * rate for rate in rates]

    def restart(self, i: int, *, accepted: bool, tried: int) -> None:
        """Forgets all of a class but trials of one outcome."""
        self.tried[i] = float(tried)
        self.accepted[i] = float(tried) if accepted else 0.0

    def rate(self, i: int) -> float:
        return self.accepted[i] / self.tried[i]

    def add(self, asked: int, accepted: int) -> None:
        for i, is_accepted in classes_tried(asked, accepted):
            self.tried[i] = self._keep * self.tried[i] + 1.0
            self.accepted[i] = self._keep * self.accepted[i] + is_accepted


def classes_tried(asked: int, accepted: int) -> Iterator[tuple[int, bool]]:
    """The class of each position that was put to the test, and whether it passed."""
    for position in range(min(asked, accepted + 1)):
        yield min(position, CLASS_COUNT - 1), position < accepted
