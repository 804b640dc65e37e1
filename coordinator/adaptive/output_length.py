"""The number of tokens to propose for one output, round by round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.adaptive.acceptance import GroupAcceptance, OutputAcceptance
from coordinator.adaptive.block_length import best_block, block_time, expected_tokens, others_loss
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.plain_trial import PlainTrial
from coordinator.adaptive.probe_budget import ProbeBudget
from coordinator.adaptive.round_costs import RoundCosts

FIRST_ROUNDS = 4
"""Rounds of each kind to measure before the length is computed."""
FIRST_LENGTH = 4
"""Tokens proposed in those of them that propose."""
ON_MARGIN = 1.05
"""By what factor proposing has to be better before it begins; less is noise."""
ROWS_MARGIN = 16
"""A pass with more tokens than twice the outputs' rows and this margin also fed a prompt; the factor leaves room for
rows of outputs that have just ended."""
CONFIDENCE_POWER = 2.0
"""A greedy draft stops once the probability of its tokens together is below this power of the acceptance chance at
which a token pays: their acceptance chance is about the square root of their probability (bundled pair: 0.33 at 0.1,
0.14 at 0.01). For sampled tokens the two are hardly related."""


class Decision(NamedTuple):
    """What to do in a round."""

    length: int
    """Tokens to ask the draft for; 0 for a plain round."""
    opens_draft: bool = False
    """Whether to open the sequence at the draft in the background; proposals begin once it is open."""
    min_confidence: float = 0.0
    """The draft stops once its tokens together have a smaller probability than this."""


@dataclass(frozen=True)
class Workload:
    """Rounds with one drafter at one level of load: a row costs more in a pass that is already full."""

    costs: RoundCosts = field(default_factory=RoundCosts)
    trial: PlainTrial = field(default_factory=PlainTrial)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What outputs share: the load between all, workloads between those with the same drafter, acceptance and budget
    within a group."""

    load: Load
    workloads: Mapping[int, Workload]
    """By level of load."""
    acceptance: GroupAcceptance
    budget: ProbeBudget

    @property
    def workload(self) -> Workload:
        """At the present load."""
        return self.workloads[self.load.level]


class OutputLength:
    """Decides before each round and learns from its outcome. Made by LengthController.

    It knows only counts and times of finished rounds, so that no decision depends on a dropped token.
    """

    def __init__(self, shared: Shared, *, fixed: int | None, is_greedy: bool):
        self._fixed = fixed
        self._is_greedy = is_greedy
        self._shared = shared
        self._contribution = Contribution(shared.load)
        self._acceptance = OutputAcceptance(shared.acceptance)
        self._length = 0
        """The length that pays, 0 if none does; to begin, it has to pay by ON_MARGIN."""
        self._is_probe = False
        """Whether this round is a probe: it proposes, or opens the draft, only to learn whether that pays."""
        self._expected = 1.0
        """Expected tokens of this round; they vary far less than the actual ones."""
        self._plain_time = 0.0
        """Time that a plain round would take."""

    def decide(self, longest: int, *, is_ready: bool = True) -> Decision:
        """Decides on the next round, with at most `longest` proposed tokens.

        `longest` is at least 0. `is_ready` says whether the draft holds the sequence. How many tokens it still has to
        read is not considered: their cost shows in the time of the probe.
        """
        self._is_probe, self._expected = False, 1.0
        decision = self._choose(longest) if self._fixed is None else Decision(min(self._fixed, longest))
        if self._fixed is None and decision.length and not is_ready:
            self._expected = 1.0
            decision = Decision(0, opens_draft=True)
        self._contribution.set_row_count(decision.length + 1)
        return decision

    def use(self, decision: Decision) -> None:
        """The round follows an earlier decision instead of the last one."""
        self._is_probe, self._expected = False, self.expected(decision.length)
        self._contribution.set_row_count(decision.length + 1)

    def expected(self, length: int) -> float:
        """Expected tokens of a round with so many proposed tokens."""
        return expected_tokens(length, self._acceptance.rates())

    @property
    def is_probing(self) -> bool:
        """Whether the last decision was a probe, which says nothing about the next."""
        return self._is_probe

    def add(self, outcome: RoundOutcome) -> None:
        """Learns from the outcome of the round."""
        shared, workload = self._shared, self._shared.workload
        workload.costs.add(outcome, shared.load.output_count, most_rows=ROWS_MARGIN + 2 * shared.load.row_count)
        if outcome.asked:
            self._acceptance.add(outcome.asked, outcome.accepted_count)
        self._contribution.add(outcome.accepted_count + 1, outcome.period)
        if self._fixed is not None:
            return
        expected = self._expected if outcome.asked else 1.0
        workload.trial.add(expected, outcome.elapsed, shared.load.output_count, was_asked=outcome.asked > 0)
        if self._is_probe and self._plain_time:
            shared.budget.spend(outcome.elapsed / self._plain_time - expected)
            if outcome.asked:
                shared.budget.judge(succeeded=outcome.accepted_count > 0)
        elif not outcome.asked:
            shared.budget.earn()

    @property
    def plain_time(self) -> float | None:
        """Seconds that a round without proposals would take now; None while unknown."""
        return self._shared.workload.costs.plain_time

    def leave(self) -> None:
        """The output is over, however it ended."""
        self._contribution.leave()

    def _choose(self, longest: int) -> Decision:
        """The number of tokens for this round."""
        workload = self._shared.workload
        costs = workload.costs
        if longest <= 0 or workload.trial.is_on or costs.plain_count < FIRST_ROUNDS:
            return Decision(0)
        if costs.proposing_count < FIRST_ROUNDS:
            return Decision(min(FIRST_LENGTH, longest))
        times, rates, others_rate = costs.times(), self._acceptance.rates(), self._contribution.others_rate
        best = best_block(rates, times, others_rate, longest)
        plain_rate = 1.0 / times.plain
        if self._length == 0:
            if best.rate > ON_MARGIN * plain_rate:
                self._length = best.length
        else:
            self._length = best.length if best.rate > plain_rate else 0
        self._plain_time = times.plain
        if self._length:
            length = min(self._length, longest)
            self._expected = expected_tokens(length, rates)
            price = min(best.rate * (times.step + times.row) + others_rate * times.row, 1.0)
            return Decision(length, min_confidence=price**CONFIDENCE_POWER if self._is_greedy else 0.0)
        expected = expected_tokens(1, rates) - others_loss(1, times, others_rate)
        if not self._shared.budget.affords(block_time(1, times) / times.plain - expected):
            return Decision(0)
        self._is_probe, self._expected = True, expected
        return Decision(1)
