"""Means of what was seen lately."""

from statistics import median

FIRST_COUNT = 5
CLIP = 6.0


class RunningMean:
    """A decayed mean over `memory` samples; a plain mean of fewer. 0 before the first."""

    __slots__ = ("_memory", "count", "value")

    def __init__(self, memory: int):
        self.value = 0.0
        self.count = 0
        self._memory = memory

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += (sample - self.value) / min(self.count, self._memory)


class SteadyMean:
    """A decayed mean in which single outliers hardly count: the machine is shared, and anything may stall it.

    The median of the first samples; from then on a sample counts as at most CLIP mean absolute deviations away
    (Huber's estimate of location, one step for each sample). 0 before the first.
    """

    __slots__ = ("_first", "_spread", "count", "memory", "value")

    def __init__(self, memory: int):
        self.value = 0.0
        self.count = 0
        self.memory = memory
        """Samples over which it averages; may be changed at any time."""
        self._spread = 0.0
        self._first: list[float] = []

    def add(self, sample: float) -> None:
        self.count += 1
        if self.count <= FIRST_COUNT:
            self._begin(sample)
            return
        weight = 1.0 / min(self.count, self.memory)
        limit = CLIP * self._spread
        deviation = min(max(sample - self.value, -limit), limit)
        self.value += weight * deviation
        self._spread += weight * (abs(deviation) - self._spread)

    def restart(self) -> None:
        """Forgets all but the value, and that at the next sample."""
        self.count = 0
        self._first = []

    def loosen(self) -> None:
        """Keeps the value as a beginning that new samples soon outweigh."""
        self.count = min(self.count, FIRST_COUNT)

    def _begin(self, sample: float) -> None:
        self._first.append(sample)
        self.value = median(self._first)
        self._spread = max(median([abs(other - self.value) for other in self._first]), 0.02 * abs(self.value))
