"""A mean of recent samples."""


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
