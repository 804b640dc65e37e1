"""The number of tokens to propose for one output, round by round."""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.adaptive.acceptance import GroupAcceptance, OutputAcceptance
from coordinator.adaptive.load import Contribution
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.probe_budget import ProbeBudget
from coordinator.adaptive.survivals import count_above, survivals
from coordinator.adaptive.workload import Workload

CONFIDENCE_POWER = 2.0
"""A greedy draft stops once the probability of its tokens together is below this power of the acceptance chance at
which a token pays: their acceptance chance is about the square root of their probability (bundled pair: 0.33 at 0.1,
0.14 at 0.01). For sampled tokens the two are hardly related."""
FIRST_ROUNDS = 1
"""Plain rounds at a level of load to measure before anything is proposed."""


class Decision(NamedTuple):
    """What to do in a round."""

    length: int
    """Tokens to ask the draft for; 0 for a plain round."""
    opens_draft: bool = False
    """Whether to open the sequence at the draft in the background; proposals begin once it is open."""
    min_confidence: float = 0.0
    """The draft stops once its tokens together have a smaller probability than this."""
    is_probe: bool = False
    """Whether it proposes only to learn whether that pays, which says nothing about the next round."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What outputs share: the workload between those with the same drafter, acceptance and budget within a group."""

    workload: Workload
    acceptance: GroupAcceptance
    probes: ProbeBudget


class OutputLength:
    """Decides before each round and learns from its outcome. Made by LengthController.

    It knows only counts and times of finished rounds, so that no decision depends on a dropped token.
    """

    def __init__(self, shared: Shared, *, fixed: int | None, is_greedy: bool):
        self._fixed = fixed
        self._is_greedy = is_greedy
        self._shared = shared
        self._workload = shared.workload
        self.contribution = Contribution(shared.workload.load)
        self._acceptance = OutputAcceptance(shared.acceptance)
        self.survivals: list[float] = []
        """For each token that may be proposed, the chance that it is accepted with all before it."""
        self._is_probe = False
        """Whether this round is a probe: it proposes, or opens the draft, only to learn whether that pays."""
        self._expected = 1.0
        """Expected tokens of this round; they vary far less than the actual ones."""
        self._plain_time = 0.0
        """Time that a plain round would take."""
        if fixed is None:
            self._workload.budget.enter(self)

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
        self.contribution.set_row_count(decision.length + 1)
        return decision

    def use(self, decision: Decision) -> None:
        """The round follows an earlier decision instead of the last one."""
        self._is_probe, self._expected = decision.is_probe, self.expected(decision.length)
        self.contribution.set_row_count(decision.length + 1)

    def expected(self, length: int) -> float:
        """Expected tokens of a round with so many proposed tokens."""
        return 1.0 + sum(survivals(self._acceptance.rates(), length))

    def add(self, outcome: RoundOutcome) -> None:
        """Learns from the outcome of the round."""
        workload, probes = self._workload, self._shared.probes
        workload.add(outcome)
        if outcome.asked:
            self._acceptance.add(outcome.asked, outcome.accepted_count)
        self.contribution.add(outcome.accepted_count + 1)
        if self._fixed is not None:
            return
        expected = self._expected if outcome.asked else 1.0
        workload.trial.add(expected, outcome.elapsed, workload.load.output_count, was_asked=outcome.asked > 0)
        if self._is_probe and self._plain_time:
            probes.spend(outcome.elapsed / self._plain_time - expected)
            if outcome.asked:
                probes.judge(succeeded=outcome.accepted_count > 0)
        elif not outcome.asked:
            probes.earn()

    @property
    def plain_time(self) -> float | None:
        """Seconds that a round without proposals would take now; None while unknown."""
        workload = self._workload
        if not workload.plain.count:
            return None
        return workload.times().plain(workload.load.output_count)

    def leave(self) -> None:
        """The output is over, however it ended."""
        self.contribution.leave()
        self._workload.budget.leave(self)

    def _choose(self, longest: int) -> Decision:
        """The number of tokens for this round."""
        workload = self._workload
        self.survivals = survivals(self._acceptance.rates(), longest)
        if longest <= 0 or workload.trial.is_on or workload.plain.count < FIRST_ROUNDS:
            return Decision(0)
        plan = workload.plan()
        length = min(count_above(self.survivals, plan.least), plan.longest)
        if not length:
            return self._probe()
        self._expected = 1.0 + sum(self.survivals[:length])
        return Decision(length, min_confidence=plan.price**CONFIDENCE_POWER if self._is_greedy else 0.0)

    def _probe(self) -> Decision:
        """One token, if the budget pays for it."""
        workload = self._workload
        load, times = workload.load, workload.times()
        plain = times.plain(load.output_count)
        others = (load.tokens - self.contribution.tokens) / plain
        expected = 1.0 + self.survivals[0] - others * times.row(load.row_count)
        if not self._shared.probes.affords(times.proposing(load.row_count, 1, 1) / plain - expected):
            return Decision(0)
        self._is_probe, self._expected, self._plain_time = True, expected, plain
        return Decision(1, is_probe=True)
