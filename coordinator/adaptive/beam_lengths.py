"""By how many tokens the draft continues the beams of a search: as many as make a step of the search cheapest.

What chains learn of a draft says little here, since a step needs all beams among the candidates, and their rows are
many. So it is measured: for each length the mean time of a pass, and the mean number of steps that it took. Lengths
that are not the best are tried again from a small share of the time, and so are those that were tried in vain, because
the draft failed or the output ended.
"""

from collections.abc import Hashable

from coordinator.adaptive.running_mean import RunningMean, UsualMean

LENGTHS = (4, 0, 2, 1)
"""In the order in which they are first tried; longer ones gained next to nothing (docs/decisions/beams.md)."""
STRETCH = 4
"""Passes of one length in a row. The first of them is not counted after another length: the draft catches up."""
MEMORY = 24
"""Passes over which times and steps are averaged."""
SHARE = 0.02
"""Of the time of searches, what trials of other lengths may cost."""
LEAST_COST = 0.1
"""Of a pass: what a trial costs at least in each of its passes, so that equal lengths do not take turns."""


class Length:
    """What passes of one length take and give."""

    def __init__(self) -> None:
        self.seconds = UsualMean(MEMORY)
        self.steps = RunningMean(MEMORY)
        self.tried_at = 0
        """The number of the trial, of all lengths."""

    @property
    def is_measured(self) -> bool:
        return self.steps.count > 0

    @property
    def cost(self) -> float:
        """Seconds of a step."""
        return self.seconds.value / self.steps.value


class Lengths:
    """Shared by searches with as many beams and the same draft."""

    def __init__(self, most: int) -> None:
        """`most` is the longest length that the services allow."""
        self._lengths = {length: Length() for length in LENGTHS if length <= most}
        self._trials = 0
        self._credit = 0.0
        """Seconds."""

    @property
    def best(self) -> int:
        """The one whose steps are cheapest, of those that were measured; at first the usual one."""
        return self._best_of(list(self._lengths))

    def _best_of(self, lengths: list[int]) -> int:
        known = [length for length in lengths if self._lengths[length].is_measured]
        return min(known, key=lambda length: self._lengths[length].cost, default=lengths[0])

    def choose(self, room: int) -> int:
        """The length of the next stretch, at most `room`."""
        fitting = [length for length in self._lengths if length <= room]
        untried = [length for length in fitting if not self._lengths[length].tried_at]
        if untried:
            return self._try(untried[0])
        best = self._best_of(fitting)
        others = [length for length in fitting if length != best]
        if not others:
            return best
        other = min(others, key=lambda length: self._lengths[length].tried_at)
        cost = self._cost_of(other, best)
        if self._credit < cost:
            return best
        self._credit -= cost
        return self._try(other)

    def add(self, length: int, step_count: int, seconds: float) -> None:
        """Adds a pass with candidates of this length, or without any for 0."""
        self._credit += SHARE * seconds
        if length in self._lengths:
            self._lengths[length].seconds.add_usual(seconds)
            self._lengths[length].steps.add(step_count)

    def _try(self, length: int) -> int:
        self._trials += 1
        self._lengths[length].tried_at = self._trials
        return length

    def _cost_of(self, length: int, best: int) -> float:
        """Seconds that a stretch of this length is expected to take more than the best one."""
        of, usual = self._lengths[length], self._lengths[best]
        more = of.seconds.value - of.steps.value * usual.cost if of.is_measured else 0.0
        return STRETCH * max(more, LEAST_COST * usual.seconds.value)


class SearchLength:
    """The lengths of one search: stretches of passes."""

    def __init__(self, lengths: Lengths):
        self._lengths = lengths
        self._length = lengths.best
        self._left = 0
        self._settles = True

    @property
    def opens_early(self) -> bool:
        """Whether the draft may read the prompt while the target does: it will be asked."""
        return self._length > 0

    def next(self, room: int) -> int:
        """Tokens by which the beams are continued in the next pass, at most `room`."""
        if not self._left or self._length > room:
            length, self._left = self._lengths.choose(room), STRETCH
            self._settles, self._length = self._settles or length != self._length, length
        self._left -= 1
        return self._length

    def add(self, length: int, step_count: int, seconds: float) -> None:
        """Adds a pass whose candidates were of this length."""
        if self._settles:
            self._settles = False
        elif length == self._length:  # no fewer, as where the draft fails
            self._lengths.add(length, step_count, seconds)


class BeamLengths:
    """Of a coordinator."""

    def __init__(self) -> None:
        self._lengths: dict[Hashable, Lengths] = {}

    def search(self, num_beams: int, draft: Hashable, most: int) -> SearchLength:
        """For a new search with so many beams, this draft, and candidates of at most this length."""
        return SearchLength(self._lengths.setdefault((num_beams, draft, most), Lengths(most)))
