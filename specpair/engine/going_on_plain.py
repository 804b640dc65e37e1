"""Decides when sequences go on without a proposal, because none is here and others would leave them behind.

Device thread only. A sequence that misses a pass waits for all of it. With a row of its own in that pass it gets one
token, and its next proposal is prepared meanwhile. That is worth it if the next proposal then comes in time: one whose
draft is too slow, or too far away, would never be there again, and the sequence would go on with single tokens.
"""

from collections.abc import Sequence as Several
from statistics import fmean

from specpair.engine.work import Work

USUAL_TOKENS = 2.0
"""Tokens that a work is expected to give, before any was seen."""
MEMORY = 64
"""Works over which the usual is averaged."""
FORGETTING = 1024
"""Works over which it is forgotten that nothing came in time, so that it is tried again from time to time."""


class GoingOnPlain:
    """What going on without a proposal gave."""

    def __init__(self) -> None:
        self._tokens = USUAL_TOKENS
        """Usual tokens of a work whose sequence may go on so, with a proposal or without."""
        self._caught_up = 1.0
        """Of the works without a proposal with which sequences went on, the share whose next call came in time."""

    def add(self, works: Several[Work]) -> None:
        """Notes works that are done, once it is known which calls follow on them."""
        for work in works:
            if work.went_on_plain:
                self._caught_up += (work.is_followed - self._caught_up) / MEMORY
            elif work.row_count == 1 or not work.may_go_on_plain:
                continue
            self._tokens += (1 + len(work.path) - self._tokens) / MEMORY

    def pays(self, works: Several[Work], here: int, fixed_cost: float) -> bool:
        """Whether the sequences of these works, for whose answers no call waits, do better with one row each in the
        next pass than without. `here` other works are in it; it takes at least `fixed_cost` seconds.

        If the pass does not wait, they gain a token and the next proposal, if that is in time, instead of the next
        proposal for certain. With g usual tokens in a pass that is worth it from a share of 1 - 1/g in time. If the
        pass waits for their calls, all lose the time for which these are away.
        """
        if not here:
            return False
        lacking = 1.0 - 1.0 / self._tokens
        if self._caught_up < lacking:
            self._caught_up += (1.0 - self._caught_up) * len(works) / FORGETTING
            return False
        usual = [work.sequence.absences.expected(has_missed=work.has_missed) for work in works]
        absences = [absence for absence in usual if absence is not None]
        if not absences:
            return True
        return (here + len(works)) * fmean(absences) > len(works) * lacking * fixed_cost
