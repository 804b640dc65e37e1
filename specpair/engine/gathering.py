"""How long a forward pass waits for sequences that are about to come back.

Outputs that are verified again and again fall apart into groups: while one group is in a pass, the calls of the other
come in, and so they alternate for ever. But a pass has a fixed cost, to read the weights, however few rows it has. To
wait for the group that was answered last costs its absence, and saves one fixed cost for each two passes. So a pass
waits for a sequence if that is usually absent for less than the fixed cost.
"""

from collections.abc import Sequence as Several

from specpair.engine.work import Work
from specpair.running_slope import RunningSlope
from specpair.sequences.sequence import Sequence

PASS_MEMORY = 512
PRIOR_WEIGHT = 1.0
"""Of the prior that rows cost nothing, in squared rows: where passes are all alike, waiting is tried."""
ABSENCE_MEMORY = 8
FIRST_COUNT = 5
MOST_LATE = 4.0
"""A pass or an absence counts as at most so many times what was expected."""
LEAST_COST = 1e-5
LATE = 2.0
"""Usual absences after which a sequence is not waited for any more: it may have ended."""


class Gathering:
    """Knows what passes cost and who is expected. Device thread only; times are readings of time.perf_counter."""

    def __init__(self) -> None:
        self._costs = RunningSlope(PASS_MEMORY)
        self._expected: dict[Sequence, float] = {}
        """Sequences that may come back soon, and until when they are waited for."""

    @property
    def fixed_cost(self) -> float:
        """Seconds of a pass that do not depend on its rows."""
        return max(self._costs.intercept(self._costs.slope(0.0, PRIOR_WEIGHT)), 0.0)

    def add_pass(self, token_count: int, seconds: float) -> None:
        """A pass that fed so many tokens, all of which had their logits taken. A stall must not tilt the line."""
        if self._costs.count >= FIRST_COUNT:
            slope = self._costs.slope(0.0, PRIOR_WEIGHT)
            seconds = min(seconds, MOST_LATE * max(self._costs.intercept(slope) + slope * token_count, LEAST_COST))
        self._costs.add(token_count, seconds)

    def arrive(self, works: Several[Work]) -> None:
        for work in works:
            sequence = work.sequence
            self._expected.pop(sequence, None)
            if sequence.answered_at:
                absence = max(work.submitted_at - sequence.answered_at, 0.0)
                known = absence if sequence.absence is None else max(sequence.absence, LEAST_COST)
                sequence.absence = known + (min(absence, MOST_LATE * known) - known) / ABSENCE_MEMORY

    def leave(self, works: Several[Work], now: float) -> None:
        """These were answered."""
        fixed_cost = self.fixed_cost
        for work in works:
            sequence = work.sequence
            sequence.answered_at = now
            if sequence.absence is not None and sequence.absence < fixed_cost:
                self._expected[sequence] = now + min(LATE * sequence.absence, fixed_cost)

    def forget(self, sequence: Sequence) -> None:
        """It is closed."""
        self._expected.pop(sequence, None)

    def patience(self, works: Several[Work], now: float) -> float:
        """Seconds that works may wait for others; none if one of them is under way already."""
        if not self._expected:
            return 0.0
        self._expected = {sequence: until for sequence, until in self._expected.items() if until > now}
        if not self._expected or any(work.started_at for work in works):
            return 0.0
        return max(self._expected.values()) - now
