"""Outputs with the same drafter, the same rule and similar temperatures."""

from collections import defaultdict

from coordinator.adaptive.acceptance import GroupAcceptance
from coordinator.adaptive.plain_trial import PlainTrial
from coordinator.adaptive.probe_budget import ProbeBudget
from coordinator.adaptive.workload import Workload

IDLE_ROUNDS = 8
"""Rounds of each output for which a plan that proposes nothing is kept: making one is work on processors that may be
the target's."""


class Group:
    """What these outputs share. What is learned stays when they have ended."""

    def __init__(self, workload: Workload):
        self.workload = workload
        """Shared with the other groups that have the same drafter."""
        self.acceptance = GroupAcceptance()
        self.probes = ProbeBudget()
        self.count = 0
        """Outputs whose lengths are decided."""
        self._trials: dict[int, PlainTrial] = defaultdict(PlainTrial)
        self._idle = 0
        """Decisions that are still plain without a look at the costs."""

    @property
    def trial(self) -> PlainTrial:
        """At the present load."""
        return self._trials[self.workload.load.level]

    def enter(self) -> None:
        self.count += 1
        self.wake()

    def leave(self) -> None:
        self.count -= 1
        self.wake()

    def idle(self) -> None:
        """Nothing pays at present: the next decisions cost nothing."""
        self._idle = IDLE_ROUNDS * self.count

    def wake(self) -> None:
        """Something has changed."""
        self._idle = 0

    def is_idle(self) -> bool:
        """Whether this decision is plain without a look at the costs. Counts it."""
        if self._idle > 0:
            self._idle -= 1
            return True
        return False
