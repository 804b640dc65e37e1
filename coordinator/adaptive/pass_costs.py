"""What a forward pass of the target takes, by its number of rows: published at its start, kept current by passes.

Beside its rows it reads what its sequences have in the cache, which takes as long however many rows they have. So
proposals pay with more outputs where texts are long (MagicDec, arXiv 2408.11049).
"""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from coordinator.adaptive.running_mean import RunningMean
from specpair.model_info import PassCost

KNOTS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
"""Row counts whose cost is kept; between them it is a line. Products take some rows at a time (6 with AVX2, 14 with
AVX-512), so that the next one may cost a step."""
ROW_PRIOR = 0.02
"""Time of one more row, as a share of a pass of one row, where nothing was published."""
SPEED_MEMORY = 6
"""Passes over which the machine's present speed is averaged: few, because it changes."""
COUNT_MARGIN = 1.0 / 8
"""By what share of the larger one the numbers of outputs may differ between passes that are compared."""
SINGLE_MEMORY = 4096
"""Passes of several outputs over which their speed takes the place of that of a single one."""
NEIGHBOURS = 3
"""Passes just before one with which it is compared to learn the shape: few, so that a slow phase does not pass for an
effect of rows."""
COMPARISON = 1.0 / (2 * NEIGHBOURS)
"""Weight of one comparison for either pass, in passes: each is compared with those before and those after it."""
MOST_BEND = 1.5
"""In that comparison a pass counts as at most so much slower or faster: a stall says nothing about rows."""
REPORTS = 4
"""Passes whose reports may still come."""
SHAPE_MEMORY = 60
"""Passes of about as many rows from which their cost against other passes is learned: many, because samples are
noisy."""
PUBLISHED_WEIGHT = 12
"""What was published counts like so many passes."""
MOST_LATE = 4.0
"""A pass counts as at most this many times the usual: anything may stall on a shared machine."""


class Near(NamedTuple):
    """One of the passes with which the next is compared. Seconds."""

    rows: int
    cached_count: float
    seconds: float
    output_count: int


class PassCosts:
    """A rising curve of seconds by rows, and what reading the cache adds: a shape that changes slowly, times a speed
    that follows the machine."""

    def __init__(self) -> None:
        self._shape = [1.0 + ROW_PRIOR * (rows - 1) for rows in KNOTS]
        """Cost of each knot, relative to the speed; rises."""
        self._counts = [0.0] * len(KNOTS)
        """Weight of each knot, in passes."""
        self._speed = RunningMean(SPEED_MEMORY)
        """Seconds for a cost of 1."""
        self._single = RunningMean(SPEED_MEMORY)
        """The speed while a single output ran."""
        self._near: deque[Near] = deque(maxlen=NEIGHBOURS)
        """The passes just before."""
        self._published: tuple[PassCost, ...] = ()
        self._cached_token = 0.0
        """Cost of a cached token."""
        self._reported: deque[tuple[int, float]] = deque(maxlen=REPORTS)

    @property
    def is_known(self) -> bool:
        """Whether anything was published or measured."""
        return self._speed.count > 0

    def publish(self, costs: tuple[PassCost, ...], cached_token_seconds: float = 0.0) -> None:
        """Takes the curve of a target that was started, in place of all that was known; nothing if it is known."""
        if not costs or (costs == self._published and cached_token_seconds == self._cached_token):
            return
        self._published, self._cached_token = costs, cached_token_seconds
        rising = [(cost.token_count, cost.seconds) for cost in costs]
        for i in range(len(rising) - 2, -1, -1):  # other work on the machine only adds time
            rising[i] = (rising[i][0], min(rising[i][1], rising[i + 1][1]))
        self._shape = [interpolated(rising, rows) for rows in KNOTS]
        self._counts = [float(PUBLISHED_WEIGHT)] * len(KNOTS)
        self._speed = RunningMean(SPEED_MEMORY)
        self._speed.add(1.0)
        self._single = RunningMean(SPEED_MEMORY)
        self._single.add(1.0)  # the target ran nothing else when it measured them
        self._near.clear()

    @property
    def single_share(self) -> float:
        """The speed while a single output ran, as a share of the present one; at most 1. The work on the answers of
        many may share the processors of the passes."""
        return min(self._single.value / self._speed.value, 1.0) if self._single.count and self._speed.value else 1.0

    def add(self, rows: int, seconds: float, cached_count: float = 0.0, *, output_count: int = 1) -> float | None:
        """Adds a pass with so many rows, whose sequences have so many tokens in the cache, while so many outputs ran;
        returns its time relative to what they cost.

        Every output in it reports the same: all but the first are skipped, and get None; so does a pass without a time.
        """
        if (rows, seconds) in self._reported or seconds <= 0.0:
            return None
        self._reported.append((rows, seconds))
        speed = seconds / self._relative(rows, cached_count)
        if self._near:
            speed = min(speed, MOST_LATE * self._speed.value)
        newest = Near(rows, cached_count, seconds, output_count)
        self._bend(newest)
        self._speed.add(speed)
        if output_count == 1:
            self._single.add(speed)
        elif self._single.count:  # known less and less well
            self._single.drift(speed, 1.0 / SINGLE_MEMORY)
        self._near.append(newest)
        return speed

    def time(self, rows: float, cached_count: float = 0.0) -> float:
        """Seconds of a pass with so many rows and tokens in the cache; 0 while nothing is known."""
        return self._speed.value * self._relative(rows, cached_count)

    def row(self, rows: float) -> float:
        """Seconds of one more row in such a pass."""
        i = segment(rows)
        return self._speed.value * (self._shape[i + 1] - self._shape[i]) / (KNOTS[i + 1] - KNOTS[i])

    def _relative(self, rows: float, cached_count: float) -> float:
        i = segment(rows)
        return self._cached_token * cached_count + line(
            KNOTS[i], self._shape[i], KNOTS[i + 1], self._shape[i + 1], rows
        )

    def _bend(self, newest: Near) -> None:
        """Compares a pass with those just before it that had other numbers of rows: if it took longer than the curve
        says, its rows cost more and theirs less. Passes with as many rows say nothing about the shape, nor do those of
        another number of outputs: the work on their answers may share the processors."""
        for near in self._near:
            if near.rows != newest.rows and are_alike(near.output_count, newest.output_count):
                ratio = newest.seconds / self._relative(newest.rows, newest.cached_count)
                ratio *= self._relative(near.rows, near.cached_count) / near.seconds
                ratio = min(max(ratio, 1.0 / MOST_BEND), MOST_BEND)
                self._move(newest.rows, ratio)
                self._move(near.rows, 1.0 / ratio)

    def _move(self, rows: int, ratio: float) -> None:
        """Moves the knots beside this number of rows; the curve stays rising."""
        i = segment(rows)
        share = min(max((rows - KNOTS[i]) / (KNOTS[i + 1] - KNOTS[i]), 0.0), 1.0)
        for knot, weight in ((i, 1.0 - share), (i + 1, share)):
            if weight > 0.0:
                weight *= COMPARISON
                self._counts[knot] = min(self._counts[knot] + weight, SHAPE_MEMORY)
                self._shape[knot] *= ratio ** (weight / self._counts[knot])
                self._straighten(knot)

    def _straighten(self, moved: int) -> None:
        """Lowers what lies before the moved knot and costs more, and raises what lies after it and costs less."""
        shape = self._shape
        for knot in range(moved - 1, -1, -1):
            if shape[knot] <= shape[knot + 1]:
                break
            shape[knot] = shape[knot + 1]
        for knot in range(moved + 1, len(shape)):
            if shape[knot] >= shape[knot - 1]:
                break
            shape[knot] = shape[knot - 1]


def are_alike(output_count: int, other_count: int) -> bool:
    """Whether passes with so many outputs can be compared."""
    return abs(output_count - other_count) <= COUNT_MARGIN * max(output_count, other_count)


def segment(rows: float) -> int:
    """The index of the knot at which the line through this number of rows begins."""
    return min(max(bisect_right(KNOTS, rows) - 1, 0), len(KNOTS) - 2)


def line(x: float, y: float, next_x: float, next_y: float, at: float) -> float:
    return y + (next_y - y) * (at - x) / (next_x - x)


def interpolated(points: list[tuple[int, float]], rows: int) -> float:
    """Seconds at so many rows; beyond the last point, as the last line goes on."""
    if len(points) == 1 or rows <= points[0][0]:
        return points[0][1]
    i = next((i for i in range(len(points) - 2) if rows <= points[i + 1][0]), len(points) - 2)
    return line(*points[i], *points[i + 1], rows)
