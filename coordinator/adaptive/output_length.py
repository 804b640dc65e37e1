"""The number of tokens to propose for one output, round by round."""

from enum import Enum
from typing import NamedTuple

from coordinator.adaptive.acceptance_estimate import AcceptanceEstimate, GroupAcceptance
from coordinator.adaptive.block_length import (
    best_block,
    block_rate,
    block_time,
    expected_tokens,
    others_loss,
    plain_rate,
)
from coordinator.adaptive.load import Load, Place
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.probe_budget import ProbeBudget
from coordinator.adaptive.probing import Probing
from coordinator.adaptive.running_mean import RunningMean
from coordinator.adaptive.workload import Workload, Workloads

FIRST_PLAIN = 3
FIRST_PROPOSING = 4
"""Rounds to measure before anything is computed."""
FIRST_LENGTH = 4
OUTPUTS_PER_EXPLORER = 8
ON_MARGIN = 1.05
CHANGE_MARGIN = 1.01
"""By how much another number has to be better."""
LONGER_EVERY = 8
"""Every so many blocks one is a token longer: what a length costs and gains is seen in different lengths alone."""
LONGEST_PROBE = 4
FEED_ROWS = 32.0
"""Tokens that the draft feeds in the time of a step."""
CONFIDENCE_SHARE = 0.3
"""A greedy draft stops at this share of the chance to be accepted that a token needs to pay: the product of its own
probabilities falls faster than the acceptance of the prefix. Where tokens are sampled the two have little to do with
each other. By replaying the bundled pair: 1 to 4 % more tokens per second at temperature 0."""
IDLE_AFTER = 8
CHECK_EVERY = 4
"""Plain rounds in a row after which only every so many are looked at: what is decided there costs time as well."""
RATE_MEMORY = 16
ROWS_MARGIN = 16
"""Tokens in a pass beyond twice those of the outputs: some that are over may still have been in it."""


class Decision(NamedTuple):
    """What to do in a round."""

    length: int
    """Tokens to ask the draft for; 0 for a plain round."""
    opens_draft: bool = False
    """Whether to open the sequence at the draft on the side: tokens are wanted as soon as that is done."""
    min_confidence: float = 0.0
    """The draft stops behind tokens to which it gives together a smaller probability."""


class Group:
    """Outputs with the same drafter and rule and alike temperatures."""

    def __init__(self) -> None:
        self.acceptance = GroupAcceptance()
        self.budget = ProbeBudget()


class Purpose(Enum):
    """Why a round is as it is."""

    PLAIN = "plain"
    OPEN = "open"
    USUAL = "usual"
    EXPLORE = "explore"
    PROBE = "probe"


class OutputLength:
    """Decides before each round and learns from its outcome. Made by LengthController.

    What it knows are counts and times of rounds that are over, so that no number depends on a token that is dropped.
    """

    def __init__(
        self, *, load: Load, workloads: Workloads, group: Group, drafter: object, fixed: int | None, is_greedy: bool
    ):
        self._fixed = fixed
        self._is_greedy = is_greedy
        self._load = load
        self._place = Place(load, is_adaptive=fixed is None)
        self._workloads = workloads
        self._drafter = drafter
        self._acceptance = AcceptanceEstimate(group.acceptance)
        self._probing = Probing(group.budget)
        self._length = 0
        """What pays by all that is known; kept until another number is better by a margin."""
        self._purpose = Purpose.PLAIN
        self._explored: Workload | None = None
        self._block_count = 0
        self._plain_streak = 0
        self._expected = 1.0
        """Tokens that this round gives on average, which vary far less than those that it gives."""
        self._price = 0.0
        """Tokens that come elsewhere in the time of one more proposed token."""
        self._chance = 1.0
        """That its first proposed token is accepted."""
        self._expected_time = 1.0
        """What a plain round would take, in microseconds."""
        self._tokens = RunningMean(RATE_MEMORY)
        self._elapsed = RunningMean(RATE_MEMORY)

    def decide(self, longest: int, *, backlog: int = 0, is_ready: bool = True) -> Decision:
        """The next round, with at most `longest` tokens proposed.

        `longest` is at least 0. `is_ready` says whether the draft holds the sequence, `backlog` how many tokens it has
        still to be fed.
        """
        self._stop_exploring()
        if self._fixed is not None:
            decision = Decision(min(self._fixed, longest))
        elif self._is_idle:
            self._purpose = Purpose.PLAIN
            decision = Decision(0)
        else:
            decision = self._decide(longest, backlog, is_ready=is_ready)
        self._place.set_row_count(decision.length + 1)
        return decision

    def add(self, outcome: RoundOutcome) -> None:
        """What came of the round."""
        self._stop_exploring()
        work = self._workloads.find(self._drafter, self._load.level)
        if outcome.asked or not self._is_idle:
            work.costs.add(outcome, self._load.output_count, most_rows=ROWS_MARGIN + 2 * self._load.row_count)
        if self._fixed is None:
            self._account(outcome, work)
        if outcome.asked:
            self._acceptance.add(outcome.asked, outcome.accepted)
        self._plain_streak = 0 if outcome.asked else self._plain_streak + 1
        self._tokens.add(outcome.accepted + 1)
        self._elapsed.add(outcome.period)
        self._place.set_rate(self._tokens.value / max(self._elapsed.value, 1.0))

    @property
    def plain_time(self) -> float | None:
        """Microseconds that a round without proposals would take now; None while nobody knows."""
        return self._workloads.find(self._drafter, self._load.level).costs.plain_time

    def leave(self) -> None:
        """The output is over, however it ended."""
        self._stop_exploring()
        self._acceptance.end()
        self._place.leave()

    @property
    def _is_idle(self) -> bool:
        return self._plain_streak > IDLE_AFTER and self._plain_streak % CHECK_EVERY != 0

    def _decide(self, longest: int, backlog: int, *, is_ready: bool) -> Decision:
        work = self._workloads.find(self._drafter, self._load.level)
        length, self._purpose = self._choose(work, longest, backlog)
        if length and not is_ready:
            self._purpose, self._expected = Purpose.OPEN, 1.0
            return Decision(0, opens_draft=True)
        if self._purpose is Purpose.EXPLORE:
            work.explorer_count += 1
            self._explored = work
        elif self._purpose is Purpose.USUAL:
            self._block_count += 1
            length = min(length + (self._block_count % LONGER_EVERY == 0), longest)
            return Decision(length, min_confidence=self._price * CONFIDENCE_SHARE if self._is_greedy else 0.0)
        return Decision(length)

    def _choose(self, work: Workload, longest: int, backlog: int) -> tuple[int, Purpose]:
        """The number of tokens for this round, and why so many."""
        if longest <= 0 or work.trial.is_on or work.costs.plain_count < FIRST_PLAIN:
            return 0, Purpose.PLAIN
        if work.costs.proposing_count < FIRST_PROPOSING:
            is_room = work.explorer_count <= self._load.output_count // OUTPUTS_PER_EXPLORER
            return (min(FIRST_LENGTH, longest), Purpose.EXPLORE) if is_room else (0, Purpose.PLAIN)
        times, rates, others_rate = work.costs.times(), self._acceptance.rates(), self._place.others_rate
        best = best_block(rates, times, others_rate, longest)
        if self._length == 0:
            if best.rate > ON_MARGIN * plain_rate(times):
                self._length = best.length
        elif best.rate <= plain_rate(times):
            self._length = 0
        elif best.rate > CHANGE_MARGIN * block_rate(min(self._length, longest), rates, times, others_rate):
            self._length = best.length
        self._expected_time = times.plain
        if self._length:
            length = min(self._length, longest)
            self._expected = expected_tokens(length, rates)
            self._price = min(best.rate * times.per_token + others_rate * times.others_per_token, 1.0)
            return length, Purpose.USUAL
        length = min(best.length, LONGEST_PROBE)
        self._chance = rates[0]
        self._expected = expected_tokens(length, rates) - others_loss(length, times, others_rate)
        time = block_time(length, times) + times.step * backlog / FEED_ROWS
        if self._probing.is_due(self._plain_streak, time / times.plain - self._expected):
            return length, Purpose.PROBE
        return 0, Purpose.PLAIN

    def _account(self, outcome: RoundOutcome, work: Workload) -> None:
        work.trial.add(
            self._expected if outcome.asked else 1.0,
            outcome.elapsed,
            self._load.adaptive_count,
            was_asked=outcome.asked > 0,
            plain_before=self._plain_streak,
        )
        if self._purpose is Purpose.PLAIN:
            self._probing.earn()
        elif self._purpose is Purpose.OPEN and outcome.is_usual and not self._length:
            self._probing.pay(outcome.elapsed / self._expected_time - 1.0)
        elif self._purpose is Purpose.PROBE:
            loss = outcome.elapsed / self._expected_time - self._expected
            self._probing.end(loss, succeeded=outcome.accepted > 0, chance=self._chance)

    def _stop_exploring(self) -> None:
        if self._explored is not None:
            self._explored.explorer_count -= 1
            self._explored = None
