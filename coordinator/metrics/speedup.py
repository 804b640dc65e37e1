"""The current speedup of speculation, measured and predicted by theory.

Pure: times come in as numbers. Both are over the same rounds: all rounds of outputs that may have proposals, rounds
without a proposal included. Older rounds count less and less.
"""

import math
from typing import NamedTuple

from coordinator.metrics.finished_round import FinishedRound
from specpair.theory.speedup import MAX_RATIO, expected_tokens, round_cost

MEMORY_SECONDS = 30.0
"""A round this old counts 1 / e of a new one."""
STALE_SECONDS = 10 * MEMORY_SECONDS
"""After this time without a round there is no estimate: load and texts may have changed."""
LARGEST_EXPONENT = 50.0
"""Weights grow up to this exponent and are then scaled back, so that adding a round takes constant time."""


class Speedup(NamedTuple):
    """Tokens per second, divided by those of the target alone."""

    measured: float
    predicted: float
    """Theorem 3.8 of Leviathan et al. (2023), from the acceptance and the cost ratio of the same rounds. It does
    not include network, queues, or the longer target pass for more rows: these explain the difference."""


class SpeedupEstimate:
    """Weighted sums over the rounds, from which both values follow."""

    def __init__(self) -> None:
        self._origin: float | None = None
        """The time at which a round has weight 1."""
        self._newest = -math.inf
        """When the last round ended that counts for the speedup."""
        self._plain_elapsed = 0.0
        """Time that the tokens would have taken in plain rounds."""
        self._elapsed = 0.0
        self._tried = 0.0
        """Proposed tokens that were judged: those after a rejected one are not."""
        self._accepted = 0.0
        self._drafted = 0.0
        self._draft_compute = 0.0
        self._plain_rounds = 0.0
        self._plain_compute = 0.0
        self._blocks: dict[int, float] = {}
        """Rounds by the number of proposed tokens."""

    def add(self, ended: FinishedRound, plain_time: float | None, now: float) -> None:
        """Adds a round that ended at `now`, in seconds of any clock.

        `plain_time` is the time, in seconds, that a plain round would have taken; None while unknown, and for an
        output that may have no proposals.
        """
        weight = self._weight(now)
        drafted, accepted = ended.depth, ended.accepted_count
        if not drafted:
            self._plain_rounds += weight
            self._plain_compute += weight * ended.verify_compute
        if plain_time is None:
            return
        self._newest = now
        self._plain_elapsed += weight * (accepted + 1) * plain_time
        self._elapsed += weight * ended.elapsed
        self._tried += weight * min(drafted, accepted + 1)
        self._accepted += weight * accepted
        self._drafted += weight * drafted
        self._draft_compute += weight * (ended.draft_compute or 0.0)
        self._blocks[drafted] = self._blocks.get(drafted, 0.0) + weight

    def speedup(self, now: float) -> Speedup | None:
        """The speedup; None before rounds with and without proposals were added, and when the last one is long ago."""
        if not (self._elapsed and self._drafted and self._plain_compute):
            return None
        if now - self._newest > STALE_SECONDS:
            return None
        return Speedup(measured=self._plain_elapsed / self._elapsed, predicted=self._predicted())

    def _predicted(self) -> float:
        """Theorem 3.8 for varying K: tokens over time, both summed over the rounds of each K."""
        acceptance = min(self._accepted / self._tried, 1.0)
        cost_ratio = self._draft_compute / self._drafted / (self._plain_compute / self._plain_rounds)
        cost_ratio = min(cost_ratio, MAX_RATIO)
        tokens = sum(rounds * expected_tokens(acceptance, k) for k, rounds in self._blocks.items())
        return tokens / sum(rounds * round_cost(k, cost_ratio) for k, rounds in self._blocks.items())

    def _weight(self, now: float) -> float:
        if self._origin is None:
            self._origin = now
        exponent = (now - self._origin) / MEMORY_SECONDS
        if exponent > LARGEST_EXPONENT:
            self._scale(math.exp(-exponent))
            self._origin, exponent = now, 0.0
        return math.exp(exponent)

    def _scale(self, factor: float) -> None:
        for name in ("plain_elapsed", "elapsed", "tried", "accepted", "drafted", "draft_compute"):
            setattr(self, f"_{name}", getattr(self, f"_{name}") * factor)
        self._plain_rounds *= factor
        self._plain_compute *= factor
        self._blocks = {k: rounds * factor for k, rounds in self._blocks.items()}
