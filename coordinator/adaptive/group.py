"""Outputs with the same drafter, the same rule and similar temperatures."""

from collections import defaultdict

from coordinator.adaptive.acceptance import GroupAcceptance
from coordinator.adaptive.confidence import Confidence
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
        self.confidence = Confidence()
        self.count = 0
        """Outputs whose lengths are decided."""
        self.opens_early = True
        """Whether the draft reads a prompt while the target does: not after an output that then proposed nothing. Of
        many requests that come at once, the first do not know yet how many they will be."""
        self.round = 0
        """Counts rounds: one begins with the decision of an output that has decided in the present one."""
        self._trials: dict[int, PlainTrial] = defaultdict(PlainTrial)
        self._idle_until = 0
        """The round in which costs are looked at again."""

    @property
    def trial(self) -> PlainTrial:
        """At the present load."""
        return self._trials[self.workload.load.level]

    @property
    def is_idle(self) -> bool:
        """Whether decisions are plain without a look at the costs."""
        return self.round < self._idle_until

    def enter(self) -> None:
        self.count += 1
        if not self.acceptance.is_known:
            self.probes.endow()
        self.wake()

    def leave(self) -> None:
        self.count -= 1
        self.wake()

    def idle(self) -> None:
        """Nothing pays at present: decisions cost nothing for a while."""
        self._idle_until = self.round + IDLE_ROUNDS

    def wake(self) -> None:
        """Something has changed."""
        self._idle_until = 0
