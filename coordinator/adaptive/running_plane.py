"""How much one quantity grows with each of two others, by what was seen lately."""

from collections.abc import Sequence
from typing import NamedTuple

FIRST_COUNT = 5
CLIP = 4.0


class Slopes(NamedTuple):
    """What one more of each adds; never below 0."""

    first: float
    second: float


class RunningPlane:
    """Decayed sums of products of the deviations of y, u and v from their means, for least squares of y on u and v.

    A y counts as at most CLIP mean absolute deviations away from its mean: one stall must not tilt the plane.
    """

    __slots__ = ("_spread", "_u", "_v", "_y", "count", "memory", "uu", "uv", "uy", "vv", "vy")

    def __init__(self, memory: int):
        self.count = 0
        self.memory = memory
        """Samples over which it averages; may be changed at any time."""
        self._spread = 0.0
        self._u = self._v = self._y = 0.0
        self.uu = self.uv = self.vv = self.uy = self.vy = 0.0

    def add(self, u: float, v: float, y: float) -> None:
        self.count += 1
        weight = 1.0 / min(self.count, self.memory)
        off_u, off_v, off_y = u - self._u, v - self._v, y - self._y
        if self.count > FIRST_COUNT:
            limit = CLIP * self._spread
            off_y = min(max(off_y, -limit), limit)
        self._spread += weight * (abs(off_y) - self._spread)
        self._u += weight * off_u
        self._v += weight * off_v
        self._y += weight * off_y
        keep, new = 1.0 - 1.0 / self.memory, 1.0 - weight
        self.uu = keep * self.uu + new * off_u * off_u
        self.uv = keep * self.uv + new * off_u * off_v
        self.vv = keep * self.vv + new * off_v * off_v
        self.uy = keep * self.uy + new * off_u * off_y
        self.vy = keep * self.vy + new * off_v * off_y


def common_slopes(planes: Sequence[RunningPlane], priors: Slopes, weights: Slopes) -> Slopes:
    """The slopes that samples of several kinds have in common, however the kinds differ otherwise.

    The minimum of the squared errors and a ridge, which holds each slope near its prior until the samples say more: it
    counts like samples whose squared deviations sum up to its weight. Where one would be negative, the other's alone.
    """
    uu, vv = weights
    uv, uy, vy = 0.0, uu * priors.first, vv * priors.second
    for plane in planes:
        uu, uv, vv = uu + plane.uu, uv + plane.uv, vv + plane.vv
        uy, vy = uy + plane.uy, vy + plane.vy
    determinant = uu * vv - uv * uv
    first, second = (uy * vv - vy * uv) / determinant, (vy * uu - uy * uv) / determinant
    if first < 0.0:
        return Slopes(0.0, max(vy / vv, 0.0))
    if second < 0.0:
        return Slopes(max(uy / uu, 0.0), 0.0)
    return Slopes(first, second)
