"""A mean of recent samples."""

MOST_LATE = 4.0
"""A sample counts as at most this many times the usual one: anything may stall on a shared machine."""


class RunningMean:
    """A decayed mean over `memory` samples; a plain mean of fewer. 0 before the first."""

    __slots__ = ("count", "memory", "value")

    def __init__(self, memory: int):
        self.value = 0.0
        self.count = 0
        self.memory = memory
        """Number of samples to average over; may be changed at any time."""

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += (sample - self.value) / min(self.count, self.memory)

    def drift(self, sample: float, weight: float) -> None:
        """Moves the mean towards a sample that is not one of its own."""
        self.value += (sample - self.value) * weight


class UsualMean(RunningMean):
    """A mean in which a stall counts as MOST_LATE times the usual sample: the mean of those above 0.

    A sample of 0, of something that was not waited for, says nothing about how long the others usually are.
    """

    __slots__ = ("_above",)

    def __init__(self, memory: int):
        super().__init__(memory)
        self._above = RunningMean(memory)

    def add_usual(self, sample: float) -> float:
        """Adds a sample, cut if it is a stall; returns what was added."""
        if sample > 0.0:
            if self._above.count:
                sample = min(sample, MOST_LATE * self._above.value)
            self._above.add(sample)
        self.add(sample)
        return sample
