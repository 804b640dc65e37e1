"""How long a sequence is away, from an answer to its next call."""

import math
from dataclasses import dataclass

MEMORY = 8
"""Absences over which the usual one is averaged."""
MOST_LATE = 4.0
"""An absence counts as at most this many times the usual one."""
RETURN_MEMORY = 4
"""Returns over which the share of those that came soon is averaged: few, since a sequence that went on by itself
without proposals may begin to ask for them."""
LEAST = 1e-5
"""Seconds of the usual one at least, for that comparison."""
SHARE = 0.4
"""Share of short absences from which on a short one is expected."""
OVERDUE = 1.5
"""After this many usual short absences a long one is expected."""


@dataclass(slots=True)
class Absences:
    """Short and long ones, with a mean for each kind. Where the draft works ahead, the next call is on its way already,
    or its proposal has to be made first: no sequence is ever away for the mean of both."""

    short: float | None = None
    """Usual seconds of the short ones; None before the first."""
    long: float | None = None
    """Usual seconds of the long ones; None before the first."""
    deviation: float = 0.0
    """By how many seconds the long ones usually differ from their mean."""
    has_missed: bool = False
    """Whether calls for other answers came before the last answer, and none for this one: then it will be long."""
    share_short: float = 0.5
    """Of the absences that might have been either."""

    share_soon: float = 0.0
    """Of the latest returns those that came soon, or were no absence at all."""

    def note_return(self, *, is_soon: bool) -> None:
        """Notes that the sequence is back, or never went."""
        self.share_soon += (is_soon - self.share_soon) / RETURN_MEMORY

    @property
    def longest(self) -> float | None:
        """The usual seconds of the longest kind; None before the first of any."""
        return self.short if self.long is None else self.long

    def add(self, seconds: float, limit: float) -> None:
        """Adds one after the last answer; it is short if it took less than `limit` seconds. While that is 0, unknown,
        nothing is learnt."""
        if not limit:
            return
        is_short = seconds < limit
        if not self.has_missed:
            self.share_short += (is_short - self.share_short) / MEMORY
        if is_short:
            self.short = mean(self.short, seconds)
        elif self.long is None:
            self.long = min(seconds, MOST_LATE * max(self.short or 0.0, limit))
        else:
            self.deviation += (min(abs(seconds - self.long), self.long) - self.deviation) / MEMORY
            self.long = mean(self.long, seconds)

    @property
    def longest_short(self) -> float:
        """Seconds after which one is no longer expected to be short; without end where all are."""
        return math.inf if self.short is None or self.long is None else OVERDUE * self.short

    def is_short(self, away: float, *, has_missed: bool) -> bool:
        """Whether one that has lasted for `away` seconds, after a miss or not, is expected to be short."""
        if self.short is None or self.long is None:
            return self.long is None
        return not has_missed and self.share_short >= SHARE and away <= self.longest_short

    def expected(self, away: float = 0.0, *, has_missed: bool) -> float | None:
        """The usual seconds, from the answer on, of one that has lasted for `away` seconds; None before the first."""
        return self.short if self.is_short(away, has_missed=has_missed) else self.long


def mean(usual: float | None, seconds: float) -> float:
    """The usual seconds with one more. A stall is capped."""
    if usual is None:
        return seconds
    usual = max(usual, LEAST)
    return usual + (min(seconds, MOST_LATE * usual) - usual) / MEMORY
