"""A mean of recent samples."""

MOST_LATE = 4.0
"""A sample counts as at most this many times the mean: anything may stall on a shared machine."""


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


def add_usual(mean: RunningMean, sample: float) -> float:
    """Adds a sample, cut to MOST_LATE times the mean; returns what was added."""
    if mean.count:
        sample = min(sample, MOST_LATE * mean.value)
    mean.add(sample)
    return sample
