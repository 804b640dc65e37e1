"""How long rounds wait for proposals that the draft prepares, by the length of the proposals."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from coordinator.adaptive.running_mean import UsualMean

MEMORY = 24
"""Proposals of each output that are remembered; few, because what is prepared changes with their lengths."""
NEW = 4
"""What is known is looked at anew once one in so many of the proposals is new: it takes 0.1 ms for eight outputs."""
LEAD = 0.1
"""Most of a pass for which a proposal has to be there before it is needed, where the target does not wait for it."""


class _Known(NamedTuple):
    late: float
    """Seconds by which it was too late; less than 0 if it was there before it was needed."""
    length: int
    waited: float
    """Seconds that its round waited, for the proposal and then for a pass; 0 if it was there in time."""


class Lateness:
    """What the draft prepares is there while the target judges the round before, or too late. One more token makes it a
    step of the draft later: which of the latest proposals would still have been in time says what longer and shorter
    ones cost. Proposals that had to be asked for are among them, and too late however short they are."""

    def __init__(self) -> None:
        self._known: deque[_Known] = deque()
        self._usual = UsualMean(MEMORY)
        self._waits: Sequence[float] = ()
        self._new_count = 0

    def add(self, late: float, length: int, waited: float, load: int) -> None:
        """Adds a proposal of `length` tokens, one of `load` outputs, that was `late` seconds too late, or there for
        `-late` seconds. Its round `waited` in all, for a pass of the target too; a stall is cut."""
        waited = self._usual.add_usual(waited) if late > 0.0 else 0.0
        self._known.append(_Known(min(late, waited), length, waited))
        self._new_count += 1
        while len(self._known) > MEMORY * load:
            self._known.popleft()

    def waits(self, step: float, most: int, missed: float | None = None) -> Sequence[float]:
        """[most + 1]: the mean seconds that a round waits for a proposal of so many tokens, of which each takes `step`
        seconds. Empty if no proposal is known.

        A single output waits until its proposal is there. Several do not wait for each other: one whose proposal is too
        late waits for a pass of the others as well, as those that were late did, or for `missed` seconds, a pass, if
        none was.
        """
        if NEW * self._new_count > len(self._known) or not self._waits:
            self._waits, self._new_count = self._counted(step, most, missed), 0
        return self._waits

    def _counted(self, step: float, most: int, missed: float | None) -> Sequence[float]:
        if not self._known:
            return ()
        lead = 0.0 if missed is None else self._lead(missed)
        if missed is not None:
            missed = fmean(waits) if (waits := [known.waited for known in self._known if known.waited]) else missed
        latest = [(late + (0.0 if waited else lead) - step * length, waited) for late, length, waited in self._known]
        latest.sort(reverse=True)
        each = [late if missed is None else waited or missed for late, waited in latest]
        sums, ready = [0.0, *accumulate(each)], [-late for late, _ in latest]
        growing = step if missed is None else 0.0
        means: list[float] = []
        for length in range(most + 1):
            count = bisect_left(ready, step * length)  # proposals that would be too late
            means.append((sums[count] + count * growing * length) / len(latest))
        return means

    def _lead(self, pass_seconds: float) -> float:
        """Seconds for which a proposal has to be there, so that it is at the target before the pass ends: what comes
        later is not among those that were in time, however many there are."""
        return min([LEAD * pass_seconds, *(-known.late for known in self._known if not known.waited)])
