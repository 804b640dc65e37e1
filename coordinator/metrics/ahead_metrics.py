"""Metrics of working ahead."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Counter, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.metrics.finished_round import FinishedRound

MOST_ACCEPTED = 8
"""Accepted counts from here on share a label, so that there are few series."""


class AheadMetrics:
    """Rounds for which the draft worked ahead, and the time that this saved."""

    def __init__(self, registry: CollectorRegistry):
        self._rounds = Counter(
            "specpair_ahead_rounds",
            "Rounds for which the draft worked ahead, by outcome (hit: the proposal was there when the verdict came; "
            "late: it was being made; miss: others were prepared; plain: the target went on without one) and by the "
            "tokens that the round before accepted.",
            ["outcome", "accepted"],
            registry=registry,
        )
        self._hidden = Counter(
            "specpair_ahead_hidden_seconds",
            "Computation of the draft for used proposals for which no round waited.",
            registry=registry,
        )
        for outcome in AheadOutcome:  # a series that begins with its first count hides it from `rate`
            for accepted in range(MOST_ACCEPTED + 1):
                self._rounds.labels(outcome.value, accepted_label(accepted))

    def add(self, ended: FinishedRound) -> None:
        """Counts a round, if the draft worked ahead for it."""
        if ended.ahead is None:
            return
        self._rounds.labels(ended.ahead.value, accepted_label(ended.accepted_before)).inc()
        self._hidden.inc(ended.hidden_time)


def accepted_label(count: int) -> str:
    return str(count) if count < MOST_ACCEPTED else f"{MOST_ACCEPTED}+"


class AheadReadings(NamedTuple):
    """Where to read what became of work that was done ahead; every kind is present from the start."""

    blocks: Mapping[Any, int]
    """Prepared proposals by their fate."""
    verifications: Mapping[Any, int]
    """Calls that were sent early by their result."""


class AheadCollector(Collector):
    """Reads the counts at each scrape."""

    def __init__(self, read: Callable[[], AheadReadings]):
        self._read = read

    def collect(self) -> Iterable[Metric]:
        blocks = CounterMetricFamily(
            "specpair_ahead_blocks",
            "Prepared proposals that the draft sent: used, unused because the verdict was another one, or stale "
            "because their round was over.",
            labels=["fate"],
        )
        verifications = CounterMetricFamily(
            "specpair_ahead_verifications",
            "Verifications that were sent before the verdict of the round before: of the round that came, or not met.",
            labels=["result"],
        )
        readings = self._read()
        for fate, count in readings.blocks.items():
            blocks.add_metric([fate], count)
        for result, count in readings.verifications.items():
            verifications.add_metric([result], count)
        return blocks, verifications
