"""The gain of speculation, measured and predicted."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.speedup import MEMORY_SECONDS, STALE_SECONDS, SpeedupEstimate
from coordinator.metrics.speedup_collector import SpeedupCollector
from specpair.theory.speedup import walltime_factor
from tests.unit.coordinator.metrics.finished_rounds import MadeRound

PLAIN = 0.001
STEP = 0.0001
"""Seconds of a plain round, and of the draft for each token."""
NOW = 5.0


class Measured(NamedTuple):
    """A round, and what a plain one would have taken."""

    round: MadeRound
    plain_time: float | None = PLAIN


def proposing(accepted: int, *, drafted: int = 4, plain_time: float | None = PLAIN) -> Measured:
    made = MadeRound(
        drafted_count=drafted,
        accepted_count=accepted,
        elapsed=1.4 * PLAIN,
        draft_compute=STEP * drafted,
        verify_compute=PLAIN,
    )
    return Measured(made, plain_time)


def plain(*, plain_time: float | None = PLAIN) -> Measured:
    """Without a time, one of an output that wants no proposals."""
    made = MadeRound(drafted_count=0, accepted_count=0, elapsed=PLAIN, draft_compute=None, verify_compute=PLAIN)
    return Measured(made, plain_time)


def estimate_of(rounds: Iterable[Measured], *, start: float = NOW, interval: float = 0.0) -> SpeedupEstimate:
    estimate = SpeedupEstimate()
    for i, measured in enumerate(rounds):
        estimate.add(*measured, start + i * interval)
    return estimate


@pytest.mark.parametrize("rounds", [[], [plain()] * 3, [proposing(4)] * 3], ids=["none", "plain", "proposing"])
def test_unknown_until_both_kinds_were_seen(rounds: list[Measured]) -> None:
    estimate = estimate_of(rounds)
    assert estimate.speedup(NOW) is None
    registry = CollectorRegistry()
    registry.register(SpeedupCollector(estimate, lambda: NOW))
    assert [sample for family in registry.collect() for sample in family.samples] == []


def test_measured_is_tokens_per_second_over_those_of_plain_rounds() -> None:
    """15 tokens in 3 * 1.4 ms, and 1 in a plain round of an output that may have proposals."""
    speedup = estimate_of([*[proposing(4)] * 3, plain()]).speedup(NOW)
    assert speedup is not None
    assert speedup.measured == pytest.approx(16 / (3 * 1.4 + 1))


def test_outputs_that_want_no_proposals_do_not_count() -> None:
    speedup = estimate_of([*[proposing(4)] * 3, *[plain(plain_time=None)] * 50]).speedup(NOW)
    assert speedup is not None
    assert speedup.measured == pytest.approx(5 / 1.4)


def test_rounds_before_plain_ones_were_measured_do_not_count() -> None:
    unknown = proposing(0, plain_time=None)
    assert estimate_of([unknown, plain(plain_time=None)]).speedup(NOW) is None


@pytest.mark.parametrize("k", [1, 4, 7])
def test_predicted_is_theorem_3_8(k: int) -> None:
    """The acceptance is that of the tokens that were put to the test: those behind a rejected one were not."""
    acceptance = k * 3 / (k * 3 + 1)  # three blocks accepted, and one rejected at once
    rounds = [*[proposing(k, drafted=k)] * 3, proposing(0, drafted=k)]
    speedup = estimate_of([*rounds, plain(plain_time=None)]).speedup(NOW)
    assert speedup is not None
    assert speedup.predicted == pytest.approx(walltime_factor(acceptance, k, STEP / PLAIN))


def test_predicted_for_mixed_lengths_lies_between() -> None:
    rounds = [*[proposing(2, drafted=2), proposing(6, drafted=6)] * 5, proposing(0, drafted=2), plain()]
    speedup = estimate_of(rounds).speedup(NOW)
    assert speedup is not None
    tried = 5 * 2 + 5 * 6 + 1
    short, long = (walltime_factor(40 / tried, k, STEP / PLAIN) for k in (2, 6))
    assert min(1.0, short, long) < speedup.predicted < max(short, long)


def test_old_rounds_fade() -> None:
    estimate = estimate_of([*[proposing(0)] * 100, plain()])
    for _ in range(100):
        estimate.add(*proposing(4), NOW + 10 * MEMORY_SECONDS)
    speedup = estimate.speedup(NOW + 10 * MEMORY_SECONDS)
    assert speedup is not None
    assert speedup.measured == pytest.approx(5 / 1.4, rel=1e-3)


def test_weights_stay_finite_over_days() -> None:
    rounds = [proposing(2), proposing(4), plain()] * 400
    speedup = estimate_of(rounds, interval=300.0).speedup(NOW + 1200 * 300.0)
    assert speedup is not None
    assert all(math.isfinite(value) and value > 0 for value in speedup)


def test_both_are_exported() -> None:
    registry = CollectorRegistry()
    estimate = estimate_of([proposing(4), plain()])
    registry.register(SpeedupCollector(estimate, lambda: NOW))
    speedup = estimate.speedup(NOW)
    assert speedup is not None
    assert registry.get_sample_value("specpair_speculation_speedup_ratio") == speedup.measured
    assert registry.get_sample_value("specpair_speculation_predicted_speedup_ratio") == speedup.predicted


def test_after_a_long_pause_neither_is_known_until_there_are_rounds_again() -> None:
    """Rounds that say nothing of the gain, as those of outputs that want no proposals, do not keep it alive."""
    now = NOW
    registry = CollectorRegistry()
    estimate = estimate_of([proposing(4), plain()])
    registry.register(SpeedupCollector(estimate, lambda: now))

    def exported() -> list[str]:
        return [sample.name for family in registry.collect() for sample in family.samples]

    now += STALE_SECONDS
    estimate.add(*plain(plain_time=None), now)
    assert len(exported()) == 2
    now += 1.0
    assert exported() == []
    estimate.add(*proposing(4), now)
    assert len(exported()) == 2
