"""How much the outputs of a group differ in what is accepted."""

MEMORY = 64
"""Segments of outputs that are remembered."""
PRIOR = 0.08
PRIOR_WEIGHT = 120.0
LEAST, MOST = 0.02, 0.25
MIN_VARIANCE = 0.5
MAX_SURPLUS = 15.0


class Dispersion:
    """The intraclass correlation of acceptance: 0 if all outputs are alike, 1 if each is accepted always or never.

    By the method of moments: of n trials at rate m, the number accepted has variance n m (1 - m) (1 + (n - 1) rho).
    """

    __slots__ = ("_surplus", "_weight")

    def __init__(self) -> None:
        self._weight = PRIOR_WEIGHT
        self._surplus = PRIOR * PRIOR_WEIGHT

    @property
    def value(self) -> float:
        return min(max(self._surplus / self._weight, LEAST), MOST)

    def add(self, accepted: int, tried: int, rate: float) -> None:
        """A segment of one output against the rate of its group. One whose outcome was certain tells nothing."""
        variance = tried * rate * (1.0 - rate)
        if variance < MIN_VARIANCE:
            return
        keep = 1.0 - 1.0 / MEMORY
        surplus = (accepted - tried * rate) ** 2 / variance - 1.0
        self._surplus = keep * self._surplus + min(surplus, MAX_SURPLUS)
        self._weight = keep * self._weight + tried - 1
