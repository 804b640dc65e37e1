"""What outputs with the same drafter share, by level of load."""

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.adaptive.draft_costs import DraftCosts
from coordinator.adaptive.load import Load
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.plain_trial import PlainTrial
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.verify_budget import Plan, RoundTimes, VerifyBudget

ROWS_MARGIN = 16
"""A pass with more tokens than twice the outputs' rows and this margin also fed a prompt; the factor leaves room for
rows of outputs that have just ended."""
ASSUMED_CALL = 0.5
"""Until a proposal was measured, a call to the draft takes this share of a round beside its pass."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """At one level of load: a call takes longer where many are made, and so does a step of the draft."""

    draft: DraftCosts = field(default_factory=DraftCosts)
    trial: PlainTrial = field(default_factory=PlainTrial)


class Workload:
    """All outputs with one drafter."""

    def __init__(
        self,
        load: Load,
        passes: PassCosts,
        rounds: Callable[[int], RoundCosts],
        first_step: Callable[[int], float],
    ):
        """`rounds` are the costs at a level, shared with other drafters. `first_step` returns the seconds of a step
        of the draft with so many sequences, until one was measured."""
        self.load = load
        self.passes = passes
        self.budget = VerifyBudget(load)
        self._rounds = rounds
        self._first_step = first_step
        self._levels: dict[int, Level] = {}

    @property
    def costs(self) -> RoundCosts:
        """At the present load."""
        return self._rounds(self.load.level)

    @property
    def trial(self) -> PlainTrial:
        """At the present load."""
        return self._level.trial

    @property
    def _level(self) -> Level:
        level = self.load.level
        if level not in self._levels:
            self._levels[level] = Level()
        return self._levels[level]

    def plan(self) -> Plan:
        """What is worth its rows at present."""
        return self.budget.plan(self.times)

    def times(self) -> RoundTimes:
        """What rounds take at present."""
        costs, draft = self.costs, self._level.draft
        if not draft.count:
            draft.assume(ASSUMED_CALL * costs.rest(proposing=False), self._first_step(self.load.output_count))
        return RoundTimes(
            plain_rest=costs.rest(proposing=False),
            rest=costs.rest(proposing=True),
            draft_rest=draft.rest,
            step=draft.step,
            passes=self.passes,
            together=costs.together.value or 1.0,
            drafted_share=draft.drafted_share.value if draft.count else 1.0,
        )

    def add(self, outcome: RoundOutcome) -> None:
        """Learns what the round took. Passes that also fed a prompt are skipped: its rows cost less."""
        load = self.load
        if not outcome.is_usual or outcome.batch_token_count > ROWS_MARGIN + 2 * load.row_count:
            return
        self.passes.add(outcome.batch_token_count, outcome.verify_compute, load.output_count)
        if outcome.asked:
            self._level.draft.add(outcome, load.output_count)
        costs = self.costs
        together = costs.together.value or 1.0
        costs.add(outcome, outcome.verify_compute / together, load.output_count, load.row_count)
