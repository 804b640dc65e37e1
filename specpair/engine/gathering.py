"""Decides how long a forward pass waits for sequences whose next call is expected soon.

Outputs that are verified repeatedly split into groups: the calls of one group arrive while another group is in a pass,
so the groups alternate for ever. But every pass has a fixed cost, reading the weights, however few rows it has. Waiting
for the group that was answered last costs its absence, and saves about one fixed cost for every two passes. So a pass
waits for a sequence whose usual absence is shorter than what one pass for all saves.

Whose calls wait for the verdict already, or come soon after it, needs no group to be gathered: who is late joins it in
the next pass. A wait then delays who is here for the sake of those who are not, and is worth it only if it saves these
more. The rule goes from the one to the other with the share of the calls of those here that came soon.

Groups that are away for longer than the fixed cost lose nothing by taking turns, and are not gathered. But the calls of
one group come one after the other, and who misses its pass by a little waits for all of it. So such a sequence is
waited for as well, when it is about to come, by the second rule, unless its absences differ too much to know when.
"""

import math
from collections.abc import Sequence as Several
from typing import NamedTuple

from specpair.engine.pass_times import PassTimes
from specpair.engine.work import Work
from specpair.running_slope import RunningSlope
from specpair.sequences.absences import Absences
from specpair.sequences.sequence import Sequence

PASS_MEMORY = 512
PARTS_MEMORY = 6
"""Passes of a size over which the time is averaged that decides whether groups are gathered. Few, so that the passes of
groups that are parted count soon: they take longer if a draft on the same processors works for another group."""
ROWS_MEMORY = 16
"""Passes over which the tokens of a sequence are averaged."""
MOST_EACH = 16
"""Most expected sequences for which it is asked what each further one saves. It takes some microseconds each time."""
MOST_ROWS = 4.0
"""A sequence counts with at most this many times the mean: the rows of a text that is scored are no proposal's."""
PRIOR_WEIGHT = 1.0
"""Weight, in squared rows, of the prior that rows cost nothing. With it, waiting is tried when all passes are alike."""
FIRST_COUNT = 5
MOST_LATE = 4.0
"""A pass, or handing over a call, counts as at most this many times the expected time."""
LEAST_COST = 1e-5
LEAST_FOLLOWED_WAIT = 0.002
"""Seconds that a pass waits at least for a call that is here already: the event loop has only to hand it over."""
SPARE = 0.1
"""Most by which rows in the background may lengthen a pass that somebody waits for, relative to the pass."""
QUICK = 1.0
"""Most by which further rows may lengthen a pass for which nobody waits, relative to that of a single row."""
MOST_SPARE = 256
"""Most of either where they seem to cost nothing."""
SOON = 0.5
"""A call that comes within this part of a pass's fixed cost after the answer before it is back soon."""
HANDING_OVER = 0.0005
"""Seconds that the event loop is expected to take for a call that is here already, before any was seen."""
HANDING_MEMORY = 16
LATE = 2.0
"""After this many usual absences a pass no longer waits for a sequence: it may have ended."""
ABOUT_TO_COME = 0.1
"""Share of the fixed cost for which a pass waits beyond the usual absence, if that is longer than the fixed cost."""
REGULAR = 0.25
"""Share of the fixed cost by which such absences differ at most, where it is known when one is about to end."""


class Awaited(NamedTuple):
    """A sequence whose next call is expected."""

    wait: float
    """Seconds until then."""
    until: float
    """When it is no longer waited for, if it has not come."""
    absence: float
    """Seconds of its whole absence."""

    @classmethod
    def at(cls, now: float, sequence: Sequence, until: float) -> "Awaited":
        absences, away = sequence.absences, now - sequence.answered_at
        absence = absences.expected(away, has_missed=absences.has_missed) or 0.0
        if absences.is_short(away, has_missed=absences.has_missed):
            until = min(until, sequence.answered_at + absences.longest_short)
        return cls(max(absence - away, 0.0), until, absence)


class Gathering:
    """Tracks the cost of passes and the expected sequences. Device thread only; times are from time.perf_counter."""

    def __init__(self) -> None:
        self.times = PassTimes()
        self._costs = RunningSlope(PASS_MEMORY)
        self._whole_times = PassTimes(PARTS_MEMORY)
        """Of passes until others could join, which may be of several steps."""
        self._saved = 0.0
        """What one pass for all would have saved, when that was last asked."""
        self._rows_each = 1.0
        """Tokens of each sequence in a pass."""
        self._expected: dict[Sequence, float] = {}
        """Sequences expected soon, and until when a pass waits for each."""
        self._followed: dict[Sequence, float] = {}
        """The same of those whose next call is here already."""
        self._handing_over = HANDING_OVER
        """Usual seconds from an answer to the next work, where the event loop had only to hand that over."""

    @property
    def fixed_cost(self) -> float:
        """Seconds of a pass that do not depend on its number of rows, by a line through all passes."""
        return max(self._costs.intercept(self._costs.slope(0.0, PRIOR_WEIGHT)), 0.0)

    def saving(self, here: int, expected: int) -> float:
        """Seconds that one pass for so many sequences saves, instead of one for those here and one for those expected.
        That is the fixed cost where the line is true; on a CPU rows are computed in groups, and it is not. The line
        serves where such passes were not seen lately. One pass spares no more than the shorter one of two."""
        rows, more = round(self._rows_each * here), round(self._rows_each * expected)
        first, second, both = map(self._whole_times.between, (rows, more, rows + more))
        if first is None or second is None or both is None:
            return self.fixed_cost
        return min(max(first + second - both, 0.0), first, second)

    def add_pass(
        self, sequence_count: int, token_count: int, seconds: float, step_seconds: float | None = None
    ) -> None:
        """Notes a pass that fed `token_count` tokens of so many sequences, all with logits: the seconds until others
        could join, and those of one step, if it took several. A stall is capped so as not to tilt the line."""
        self.times.add(token_count, seconds if step_seconds is None else step_seconds)
        self._whole_times.add(token_count, seconds)
        rows = min(token_count / sequence_count, MOST_ROWS * self._rows_each)
        self._rows_each += (rows - self._rows_each) / ROWS_MEMORY
        if self._costs.count >= FIRST_COUNT:
            slope = self._costs.slope(0.0, PRIOR_WEIGHT)
            seconds = min(seconds, MOST_LATE * max(self._costs.intercept(slope) + slope * token_count, LEAST_COST))
        self._costs.add(token_count, seconds)

    def spare_rows(self, token_count: int) -> int:
        """Rows that lengthen a pass of `token_count` tokens by at most `SPARE`; 0 while the costs are unknown."""
        return self._further_rows(token_count, SPARE) if self._costs.count >= FIRST_COUNT else 0

    def quick_rows(self) -> int:
        """Rows of a pass that is longer than one of a single row by at most `QUICK`; many while the costs are
        unknown."""
        return 1 + self._further_rows(1, QUICK) if self._costs.count >= FIRST_COUNT else MOST_SPARE

    def _further_rows(self, token_count: int, share: float) -> int:
        """Rows that lengthen a pass by at most this share, by the line of all passes or by those of their size."""
        slope = self._costs.slope(0.0, PRIOR_WEIGHT)
        seconds = max(self._costs.intercept(slope), 0.0) + slope * token_count
        if MOST_SPARE * slope <= share * seconds:
            return MOST_SPARE
        return max(int(share * seconds / slope), self.times.within(token_count, 1.0 + share) - token_count)

    def go_on(self, works: Several[Work]) -> None:
        """Notes works with which the device thread goes on by itself."""
        for work in works:
            self.forget(work.sequence)
            work.sequence.absences.note_return(is_soon=True)

    def arrive(self, works: Several[Work]) -> None:
        """Notes works that the event loop handed over."""
        for work in works:
            if work.is_background:
                continue
            sequence = work.sequence
            self.forget(sequence)
            if not sequence.answered_at:
                continue
            absence = max(work.submitted_at - sequence.answered_at, 0.0)
            is_soon = sequence.is_followed or absence < SOON * self.fixed_cost
            sequence.absences.note_return(is_soon=is_soon)
            if sequence.is_followed:
                absence = min(absence, MOST_LATE * max(self._handing_over, LEAST_COST))
                self._handing_over += (absence - self._handing_over) / HANDING_MEMORY
            else:
                sequence.absences.add(absence, SOON * self.fixed_cost)

    def leave(self, works: Several[Work], now: float) -> None:
        """Notes that these works were answered."""
        fixed_cost = max(self.fixed_cost, self._saved)
        for work in works:
            if work.is_background:
                continue
            sequence = work.sequence
            sequence.answered_at, sequence.is_followed = now, work.is_followed
            sequence.absences.has_missed = not sequence.is_followed and work.has_missed
            if sequence.is_followed:
                self._followed[sequence] = now + max(fixed_cost, LEAST_FOLLOWED_WAIT)
            elif (absence := self._longest(sequence.absences, fixed_cost)) is not None:
                self._expected[sequence] = now + max(
                    min(LATE * absence, fixed_cost), absence + ABOUT_TO_COME * fixed_cost
                )

    @staticmethod
    def _longest(absences: Absences, fixed_cost: float) -> float | None:
        """The longest usual absence of which the end can be foreseen; None if there is none."""
        longest = absences.longest
        is_foreseen = longest is None or longest < fixed_cost or absences.deviation <= REGULAR * fixed_cost
        return longest if is_foreseen else absences.short

    def forget(self, sequence: Sequence) -> None:
        """Removes a sequence that is here again, or closed."""
        self._expected.pop(sequence, None)
        self._followed.pop(sequence, None)

    def patience(self, works: Several[Work], now: float) -> float:
        """Seconds that works may wait for others; 0 if one of them is in the background. If one of them is midway, they
        wait for calls that are here and for no others."""
        if not self._expected and not self._followed:
            return 0.0
        self._expected = {sequence: until for sequence, until in self._expected.items() if until > now}
        self._followed = {sequence: until for sequence, until in self._followed.items() if until > now}
        if any(work.is_background for work in works):
            return 0.0
        ends = [*self._followed.values()] if self._saves_for_followed(len(works)) else []
        if not any(work.is_midway for work in works):
            ends += self._worthwhile(works, now)
        return max(ends, default=now) - now

    def _saves_for_followed(self, count: int) -> bool:
        """Whether a wait of `count` works for the calls that the event loop is handing over saves these more than it
        costs. They may be few beside many with which the device thread went on by itself."""
        fixed_cost = max(self.fixed_cost, LEAST_FOLLOWED_WAIT)
        return count * self._handing_over < len(self._followed) * (fixed_cost - self._handing_over)

    def _worthwhile(self, works: Several[Work], now: float) -> list[float]:
        """Until when a wait of these works for expected sequences pays, for as many of these as it does.

        A wait of t for k of them costs t for each work. It saves each of them the rest of what a pass that begins
        without them would cost them, k (saving - t). Groups of sequences that seldom come back soon stay parted once
        they are, and the cost is paid once for many passes, so it counts less; not for those that are away for longer,
        whose groups may stay parted.
        """
        count = len(works)
        saved = self._saved = self.saving(count, len(self._expected))
        each = len(self._expected) <= MOST_EACH
        gathered = sum(map(_weight, works))
        expected = sorted(Awaited.at(now, sequence, until) for sequence, until in self._expected.items())
        ends: list[float] = []
        for place, (wait, until, absence) in enumerate(expected, start=1):
            saved = self.saving(count, place) if each else saved
            weight = gathered if absence < saved else count
            if weight * wait < place * (saved - wait):
                ends.append(min(until, now + saved * place / (weight + place)))
        return ends


def _weight(work: Work) -> float:
    """How much a wait counts for a work. One for whose first answer somebody waits has no returns to tell."""
    return math.sqrt(work.sequence.absences.share_soon) if work.sequence.answered_at else 1.0
