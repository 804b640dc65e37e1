"""Shares the rows of a pass between all outputs with one drafter.

Each further token of each output competes for the pass. The plan that gives the most tokens per second is kept for a
while.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.plan import NOTHING, Plan, best_plan
from coordinator.adaptive.round_times import RoundTimes

ON_MARGIN = 1.05
"""By what factor proposing has to be better before it begins; less is noise."""
TOGETHER_MARGIN, KEPT_MARGIN = 0.1, 0.05
"""How much more it has to gain to begin, and to go on, where many outputs share passes: one half of it for two, nearly
all for sixteen. Those that are accepted less end later, in passes that are less full, and rounds with and without
proposals wait for each other. What proposals really gain is found by trials while they go on, and one that stopped is
not tried again: so little is asked to go on."""


class Member(Protocol):
    """An output that proposes as many tokens as pay."""

    @property
    def survivals(self) -> Sequence[float]:
        """For each token that it may propose, the chance that it is accepted with all before it. Falls."""
        ...

    @property
    def contribution(self) -> Contribution: ...


class VerifyBudget:
    """The plan of all outputs with one drafter, made anew for every other round of each."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._members: dict[Member, None] = {}
        self._plan = NOTHING
        self._left = 0
        """Decisions by the present plan that may still be made."""

    def enter(self, member: Member) -> None:
        self._members[member] = None
        self._left = 0

    def leave(self, member: Member) -> None:
        self._members.pop(member, None)
        self._left = 0

    def plan(self, times: Callable[[], RoundTimes]) -> Plan:
        """The plan for a decision."""
        if self._left <= 0:
            self._plan = self._made(times())
            self._left = len(self._members) // 2
        self._left -= 1
        return self._plan

    def _made(self, times: RoundTimes) -> Plan:
        members, load = self._members, self._load
        others_tokens = load.tokens - sum(member.contribution.tokens for member in members)
        others_rows = load.row_count - sum(member.contribution.row_count for member in members)
        plan = best_plan([member.survivals for member in members], others_tokens, others_rows, times)
        shared = 1.0 - 1.0 / len(members)
        least = 1.0 + KEPT_MARGIN * shared if self._plan.longest else ON_MARGIN + TOGETHER_MARGIN * shared
        return NOTHING if plan.gain < least else plan
