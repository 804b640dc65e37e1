"""What rounds take beside draft and pass, at one level of load."""

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import RunningMean, add_usual

MEMORY = 10
"""Rounds of each output over which the parts are averaged; few, to follow the machine's speed."""
LEAST_REST = 0.02
"""The rest is at least this share of a round, whatever the parts say."""


class RoundCosts:
    """Rounds of one kind: all outputs propose nothing, or some of them do.

    The rest of a round is its time without the draft's call and without the target: calls, queues, the coordinator's
    own work.
    """

    def __init__(self) -> None:
        self.count = 0
        """Rounds that were measured."""
        self._rest = RunningMean(MEMORY)
        self._together = RunningMean(MEMORY)

    @property
    def rest(self) -> float:
        """Seconds; 0 before the first round."""
        return self._rest.value

    @property
    def together(self) -> float:
        """Share of all outputs' rows that are in one pass: 1 if the outputs keep step."""
        return self._together.value if self.count else 1.0

    def add(self, outcome: RoundOutcome, load: int, row_count: float) -> None:
        """Adds a round, while `load` outputs with `row_count` rows ran."""
        self.count += 1
        self._rest.memory = self._together.memory = MEMORY * load
        self._together.add(min(outcome.batch_token_count / row_count, 1.0) if load > 1 else 1.0)
        target = outcome.verify_compute / self._together.value
        add_usual(self._rest, max(outcome.elapsed - outcome.draft_elapsed - target, LEAST_REST * outcome.elapsed))
