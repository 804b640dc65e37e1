"""How much may be lost on finding out whether proposals pay."""

SHARE = 0.005
"""Tokens that may be lost for each round without proposals."""
MOST_CREDIT = 3.0
"""Tokens: also the largest debt."""
LEAST_COST = 0.02
"""Of a probe, in tokens: even if it seems to cost nothing, or to gain, not every round is one."""


class ProbeBudget:
    """The budget of a group of outputs: rounds without proposals fill it, probes are paid from it. In tokens."""

    def __init__(self) -> None:
        self._credit = 0.0

    def earn(self) -> None:
        """For a round without proposals."""
        self._credit = min(self._credit + SHARE, MOST_CREDIT)

    def affords(self, cost: float) -> bool:
        return self._credit >= max(cost, LEAST_COST)

    def spend(self, cost: float) -> None:
        """What was lost; more than was there leaves a debt."""
        self._credit = max(self._credit - max(cost, LEAST_COST), -MOST_CREDIT)
