"""How much may be lost on finding out whether proposals pay."""

MOST_SHARE, LEAST_SHARE = 0.008, 0.002
"""Tokens that may be lost for each round without proposals: less while probes fail, so that a draft that is never right
costs next to nothing."""
SHARE_FACTOR = 0.8
"""Of the share that is left after a probe that failed."""
MOST_CREDIT = 3.0
"""Tokens: also the largest debt."""
LEAST_COST = 0.02
"""Of a probe, in tokens: even if it seems to cost nothing, or to gain, not every round is one."""


class ProbeBudget:
    """The budget of a group of outputs: rounds without proposals fill it, probes are paid from it. In tokens."""

    def __init__(self) -> None:
        self._credit = 0.0
        self._share = MOST_SHARE

    def earn(self) -> None:
        """For a round without proposals."""
        self._credit = min(self._credit + self._share, MOST_CREDIT)

    def affords(self, cost: float) -> bool:
        return self._credit >= max(cost, LEAST_COST)

    def spend(self, cost: float) -> None:
        """What was lost; more than was there leaves a debt."""
        self._credit = max(self._credit - max(cost, LEAST_COST), -MOST_CREDIT)

    def judge(self, *, succeeded: bool) -> None:
        """Whether a probe had its token accepted."""
        self._share = MOST_SHARE if succeeded else max(self._share * SHARE_FACTOR, LEAST_SHARE)
