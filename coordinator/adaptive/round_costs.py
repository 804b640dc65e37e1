"""What rounds take beside draft and pass, at one level of load."""

from collections import deque
from statistics import median

from coordinator.adaptive.outcome import RoundOutcome

MEMORY = 12
"""Rounds of each output that are remembered; few, to follow the machine's speed."""


class RoundCosts:
    """Rounds of one kind: all outputs propose nothing, or some of them do.

    The rest of a round is its time without the draft's call and without the target: calls, queues, the coordinator's
    own work. It is a median, since some rounds wait for a prompt or a stall.
    """

    def __init__(self) -> None:
        self.count = 0
        """Rounds that were measured; 0 again once all are forgotten."""
        self._rounds: deque[tuple[float, float, float]] = deque()
        """Time without the draft, time of the pass, share of all outputs' rows in it; times in units."""
        self._rest, self._together = 0.0, 1.0
        self._is_current = True

    @property
    def rest(self) -> float:
        """In the unit of `add`; 0 before the first round."""
        self._update()
        return self._rest

    @property
    def together(self) -> float:
        """Share of all outputs' rows that are in one pass: 1 if the outputs keep step."""
        self._update()
        return self._together

    def add(self, outcome: RoundOutcome, load: int, row_count: float, unit: float = 1.0) -> None:
        """Adds a round, while `load` outputs with `row_count` rows ran. `rest` is in this unit, in seconds."""
        self.count += 1
        self._is_current = False
        share = min(outcome.batch_token_count / row_count, 1.0) if load > 1 else 1.0
        self._rounds.append(((outcome.elapsed - outcome.draft_elapsed) / unit, outcome.verify_compute / unit, share))
        while len(self._rounds) > MEMORY * load:
            self._rounds.popleft()

    def forget(self) -> None:
        """Drops the oldest round."""
        if self._rounds:
            self._rounds.popleft()
            self._is_current = False
        if not self._rounds:
            self.count = 0

    def _update(self) -> None:
        if not self._is_current and self._rounds:
            self._is_current = True
            self._together = median(share for _, _, share in self._rounds)
            self._rest = max(median(time - target / self._together for time, target, _ in self._rounds), 0.0)
