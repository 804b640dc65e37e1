"""What outputs with the same drafter share, by level of load."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.adaptive.draft_costs import DraftCosts
from coordinator.adaptive.load import Load
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.plain_trial import PlainTrial
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.slowdown import Slowdown
from coordinator.adaptive.verify_budget import Plan, RoundTimes, VerifyBudget, Way

ROWS_MARGIN = 16
"""A pass with more tokens than twice the outputs' rows and this margin also fed a prompt; the factor leaves room for
rows of outputs that have just ended."""
IN_STEP = 0.75
"""From this share of all outputs' rows in a pass on, all are in step."""
NEVER = float("inf")
ASSUMED_CALL = 0.5
"""Until a proposal was measured, a call to the draft takes this share of a round beside its pass."""


@dataclass(kw_only=True)
class Level:
    """At one level of load: a call takes longer where many are made, and so does a step of the draft."""

    in_step: RoundCosts = field(default_factory=RoundCosts)
    """Of rounds with a proposal in a pass that all outputs share."""
    apart: RoundCosts = field(default_factory=RoundCosts)
    """Of the others."""
    is_apart: bool = False
    """Whether the last proposal was in such a pass."""
    slowdown: Slowdown = field(default_factory=Slowdown)
    draft: DraftCosts = field(default_factory=DraftCosts)
    trial: PlainTrial = field(default_factory=PlainTrial)


class Workload:
    """All outputs with one drafter."""

    def __init__(
        self,
        load: Load,
        passes: PassCosts,
        plain: Callable[[int], RoundCosts],
        first_step: Callable[[int], float],
    ):
        """`plain` are the costs of plain rounds at a level, shared with other drafters. `first_step` returns the
        seconds of a step of the draft with so many sequences, until one was measured."""
        self.load = load
        self.passes = passes
        self.budget = VerifyBudget(load)
        self._plain = plain
        self._first_step = first_step
        self._levels: dict[int, Level] = defaultdict(Level)
        self._times: RoundTimes | None = None
        self._times_level = 0
        self._fresh = 0
        """Rounds for which the times still hold."""

    @property
    def plain(self) -> RoundCosts:
        """Of rounds while no output proposes, at the present load."""
        return self._plain(self.load.level)

    @property
    def trial(self) -> PlainTrial:
        """At the present load."""
        return self._levels[self.load.level].trial

    def plan(self) -> Plan:
        """What is worth its rows at present."""
        return self.budget.plan(self.times)

    def times(self) -> RoundTimes:
        """What rounds take at present; made anew once for every other round of each output."""
        level = self.load.level
        if self._times is None or self._fresh <= 0 or level != self._times_level:
            self._times, self._times_level, self._fresh = self._made(), level, self.load.output_count // 2
        return self._times

    def _made(self) -> RoundTimes:
        plain, level, count = self.plain, self._levels[self.load.level], self.load.output_count
        draft, passes = level.draft, self.passes
        draft.assume(ASSUMED_CALL * plain.rest, self._first_step(count))
        in_step = level.in_step if level.in_step.count else plain
        apart = level.apart if level.apart.count else in_step
        slowdown = level.slowdown.ratio
        return RoundTimes(
            plain_rest=plain.rest,
            plain_together=plain.together,
            in_step=Way(in_step.rest, 1.0, 1.0, 1.0),
            apart=Way(apart.rest, level.apart.together if level.apart.count else 0.5, slowdown, 0.0),
            draft_rest=draft.rest,
            step=draft.step,
            passes=passes,
            fixed_cost=max(passes.time(count) - passes.row(count) * count, 0.0) if count > 1 else NEVER,
            present_slowdown=level.slowdown.ratio if level.is_apart and self.load.row_count > count else 1.0,
            drafted_share=draft.drafted_share.value if draft.count else 1.0,
        )

    def add(self, outcome: RoundOutcome) -> None:
        """Learns what the round took. Passes that also fed a prompt are skipped: its rows cost less."""
        self._fresh -= 1
        load, level = self.load, self._levels[self.load.level]
        count, rows = load.output_count, load.row_count
        if not outcome.is_usual or outcome.batch_token_count > ROWS_MARGIN + 2 * rows:
            return
        speed = self.passes.add(outcome.batch_token_count, outcome.verify_compute)
        if speed is not None:
            level.slowdown.add(speed, is_proposing=rows > count)
        if outcome.asked:
            level.draft.add(outcome, count)
            drafted = count + (rows - count) * level.draft.drafted_share.value
            level.is_apart = outcome.batch_token_count < IN_STEP * drafted
            costs = level.apart if level.is_apart else level.in_step
            costs.add(outcome, count, max(drafted, outcome.batch_token_count))
        elif rows == count:
            self.plain.add(outcome, count, count)
