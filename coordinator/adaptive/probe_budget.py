"""The budget for probes, which find out whether proposals pay."""

MOST_SHARE, LEAST_SHARE = 0.008, 0.002
"""Tokens that probes may cost per round without proposals. The share falls while probes fail, so that a draft that is
never right costs almost nothing."""
SHARE_FACTOR = 0.8
"""What remains of the share after a failed probe."""
MOST_CREDIT = 3.0
"""Tokens: also the largest debt."""
LEAST_COST = 0.02
"""Least cost of a probe, in tokens: it limits the number of probes even if they seem to cost nothing."""


class ProbeBudget:
    """The budget of a group of outputs: rounds without proposals fill it, probes are paid from it. In tokens."""

    def __init__(self) -> None:
        self._credit = 0.0
        self._share = MOST_SHARE

    def earn(self) -> None:
        """Adds credit for a round without proposals."""
        self._credit = min(self._credit + self._share, MOST_CREDIT)

    def affords(self, cost: float) -> bool:
        return self._credit >= max(cost, LEAST_COST)

    def spend(self, cost: float) -> None:
        """Pays for a probe. A cost above the credit leaves a debt."""
        self._credit = max(self._credit - max(cost, LEAST_COST), -MOST_CREDIT)

    def judge(self, *, succeeded: bool) -> None:
        """Adjusts the share: `succeeded` says whether the probe's token was accepted."""
        self._share = MOST_SHARE if succeeded else max(self._share * SHARE_FACTOR, LEAST_SHARE)
