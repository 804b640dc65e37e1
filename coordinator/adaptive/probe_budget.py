"""How much may be lost on finding out whether proposals pay."""

MOST_SHARE, LEAST_SHARE = 0.008, 0.002
"""Tokens that may be lost for each round without proposals."""
SHARE_FACTOR = 0.8
MOST_CREDIT = 3.0
MOST_DEBT = 0.5
LEAST_COST = 0.02


class ProbeBudget:
    """The budget of a group of outputs: rounds without proposals fill it, probes are paid from it. In tokens.

    While probes fail less is paid in; the first that succeeds sets it back.
    """

    __slots__ = ("_credit", "_share")

    def __init__(self) -> None:
        self._credit = 0.0
        self._share = MOST_SHARE

    def earn(self) -> None:
        """For a round without proposals."""
        self._credit = min(self._credit + self._share, MOST_CREDIT)

    def affords(self, cost: float) -> bool:
        return self._credit >= max(cost, LEAST_COST)

    @property
    def lends(self) -> bool:
        """Whether a probe may be made that cannot be paid yet."""
        return self._credit > -MOST_DEBT

    def spend(self, cost: float) -> None:
        """What was lost; more than was there leaves a debt, as large as the credit can be."""
        self._credit = max(self._credit - max(cost, LEAST_COST), -MOST_CREDIT)

    def judge(self, *, succeeded: bool) -> None:
        """What came of a probe."""
        self._share = MOST_SHARE if succeeded else max(self._share * SHARE_FACTOR, LEAST_SHARE)
