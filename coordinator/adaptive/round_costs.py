"""What rounds take beside draft and pass, at one level of load."""

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import RunningMean, add_usual

REST_MEMORY = 10
"""Rounds of each output over which the rest of a round is averaged; few, to follow the machine's speed."""
LEAST_REST = 0.02
"""The rest is at least this share of a round, whatever the parts say."""
SHARE_MEMORY = 8
"""Rounds of each output over which shares are followed."""
MINORITY = 0.25
"""Up to this share of rounds with proposals, they are compared with the plain rounds around them (`ratio`); not with
a single output, whose draft and target never work at the same time."""
RATIO_MEMORY = 48
RATIO_PRIOR = 8
"""Weight of the initial ratio of 1, in samples."""
MOST_RATIO = 2.0
"""Upper bound of a sample: among few samples one stall weighs much."""


class RoundCosts:
    """The rest of a round is its time without the draft's call and without the pass: calls, queues, the coordinator's own
    work. It is learned from rounds of both kinds, so that the time of a plain round is known while there is none."""

    def __init__(self) -> None:
        self.plain_count = 0
        """Plain rounds that were measured."""
        self.together = RunningMean(SHARE_MEMORY)
        """Share of all outputs' rows that are in one pass: 1 if the outputs keep step."""
        self._rest = RunningMean(REST_MEMORY)
        self._share = RunningMean(SHARE_MEMORY)
        self._ratio = RunningMean(RATIO_MEMORY)
        self._ratio.value, self._ratio.count = 1.0, RATIO_PRIOR
        """Ratio of the rest with proposals to the rest without: a draft on the same processor slows the target."""

    @property
    def is_known(self) -> bool:
        """Whether any round was measured."""
        return self._rest.count > 0

    def rest(self, *, proposing: bool) -> float:
        """Seconds of a round beside its parts; 0 before the first round."""
        return self._rest.value * (self._ratio.value if proposing else 1.0)

    def add(self, outcome: RoundOutcome, pass_time: float, load: int, row_count: int) -> None:
        """Adds a round, while `load` outputs with `row_count` rows ran. `pass_time` is its share of the target."""
        self._rest.memory = REST_MEMORY * load
        self._share.memory = self.together.memory = SHARE_MEMORY * load
        self._share.add(outcome.asked > 0)
        self.together.add(min(outcome.batch_token_count / max(row_count, 1), 1.0))
        rest = max(outcome.elapsed - outcome.draft_elapsed - pass_time, LEAST_REST * outcome.elapsed)
        if outcome.asked:
            if load > 1 and self.plain_count and self._share.value <= MINORITY:
                self._ratio.add(min(rest / self._rest.value, MOST_RATIO))
            rest /= self._ratio.value
        else:
            self.plain_count += 1
        add_usual(self._rest, rest)
