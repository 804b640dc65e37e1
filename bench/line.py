"""A straight line through measured points."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression


@dataclass(frozen=True, kw_only=True)
class Line:
    """intercept + slope * x, by least squares."""

    intercept: float
    slope: float

    @classmethod
    def through(cls, xs: Sequence[float], ys: Sequence[float]) -> "Line":
        """Raises StatisticsError for fewer than two points, or if all xs are equal."""
        slope, intercept = linear_regression(xs, ys)
        return cls(intercept=intercept, slope=slope)
