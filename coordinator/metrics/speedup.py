"""What speculation gains at present, measured and as theory has it.

Pure: times come in as numbers. Both are over the same rounds, those of outputs for which tokens may be proposed, the
rounds among them that went without proposals included. Older rounds count less and less.
"""

import math
from typing import NamedTuple

from coordinator.metrics.finished_round import FinishedRound
from specpair.theory.speedup import MAX_RATIO, expected_tokens, round_cost

MEMORY_SECONDS = 30.0
"""After so long a round counts 1 / e of a new one."""
STALE_SECONDS = 10 * MEMORY_SECONDS
"""Without a round for so long nothing is known of the present: load and texts may be others by now."""
LARGEST_EXPONENT = 50.0
"""Weights grow until then and are scaled back, so that a round costs the same however many there were."""


class Speedup(NamedTuple):
    """Tokens per second over those of the target alone."""

    measured: float
    predicted: float
    """Theorem 3.8 of Leviathan et al. (2023), from the acceptance and the cost ratio of the same rounds. It knows of no
    network, no queues, and no target pass that takes longer for more rows: so much of the difference is theirs."""


class SpeedupEstimate:
    """Sums over the rounds, from which both follow."""

    def __init__(self) -> None:
        self._origin: float | None = None
        """The time at which a round has weight 1."""
        self._newest = -math.inf
        """When the last round ended that says something of the gain."""
        self._plain_elapsed = 0.0
        """What the tokens would have taken in plain rounds."""
        self._elapsed = 0.0
        self._tried = 0.0
        """Tokens that were put to the test: behind a rejected one none is."""
        self._accepted = 0.0
        self._drafted = 0.0
        self._draft_compute = 0.0
        self._plain_rounds = 0.0
        self._plain_compute = 0.0
        self._blocks: dict[int, float] = {}
        """Rounds by the number of proposed tokens."""

    def add(self, ended: FinishedRound, plain_time: float | None, now: float) -> None:
        """A round that ended at `now`, in seconds of any clock.

        `plain_time` is what one without proposals would have taken, in seconds; None while nobody knows, and for an
        output that may have no proposals.
        """
        weight = self._weight(now)
        drafted, accepted = ended.drafted_count, ended.accepted_count
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
        """None until rounds of both kinds were seen, with and without proposals; and when the last one is long ago."""
        if not (self._elapsed and self._drafted and self._plain_compute):
            return None
        if now - self._newest > STALE_SECONDS:
            return None
        return Speedup(measured=self._plain_elapsed / self._elapsed, predicted=self._predicted())

    def _predicted(self) -> float:
        """Theorem 3.8 with K as it was: tokens over time, both summed over the rounds of each K."""
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
