"""How much slower passes are while outputs propose, whatever their rows: a draft may share the target's processor."""

from collections import deque
from statistics import median

from coordinator.adaptive.pass_costs import are_alike
from coordinator.adaptive.running_mean import RunningMean

MEMORY = 4
"""Changes between proposing and not over which the ratio is averaged."""
PRIOR = 1
"""Weight of the initial ratio of 1, in changes."""
SETTLING = 1
"""Passes after a change that are left out: they may be of both kinds."""
COMPARED = 4
"""Passes on each side of a change that are compared: few, because the machine's speed changes."""
LEAST, MOST = 0.8, 4.0


class Slowdown:
    """Learned where proposals begin or end: only there are passes of both kinds beside each other."""

    def __init__(self) -> None:
        self._ratio = RunningMean(MEMORY)
        self._ratio.value, self._ratio.count = 1.0, PRIOR
        self._is_proposing = False
        self._output_count = 0
        self._before: float | None = None
        """Median time of the last passes of the other kind, relative to their rows."""
        self._recent: deque[float] = deque(maxlen=COMPARED)
        self._seen = 0
        """Passes since the change."""

    @property
    def ratio(self) -> float:
        """Time of a pass while outputs propose, over that of one with as many rows while none do."""
        return self._ratio.value

    def add(self, speed: float, output_count: int, *, is_proposing: bool) -> None:
        """Adds a pass that took `speed` times what its rows cost, while so many outputs ran."""
        if not are_alike(output_count, self._output_count):
            self.forget()
            self._output_count = output_count
        if is_proposing != self._is_proposing:
            self._before = median(self._recent) if len(self._recent) == COMPARED else None
            self._is_proposing, self._seen = is_proposing, 0
            self._recent.clear()
        self._seen += 1
        if self._seen > SETTLING:
            self._recent.append(speed)
        if self._seen == SETTLING + COMPARED and self._before is not None:
            ratio = median(self._recent) / self._before
            self._ratio.add(min(max(ratio if is_proposing else 1.0 / ratio, LEAST), MOST))

    def forget(self) -> None:
        """Drops the passes seen, which are not beside those that follow."""
        self._before, self._seen = None, 0
        self._recent.clear()
