"""Metrics of the open sequences of a service, read at each scrape."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from specpair.sequences.sequence_limits import NoRoom


class CountedSequences(Protocol):
    """The counts of open sequences that metrics read."""

    @property
    def expired_count(self) -> int: ...
    @property
    def refusals(self) -> Mapping[NoRoom, int]: ...
    def __len__(self) -> int: ...


class SequenceCollector(Collector):
    """Counts open, expired and refused sequences."""

    def __init__(self, sequences: CountedSequences):
        self._sequences = sequences

    def collect(self) -> Iterable[Metric]:
        held = self._sequences
        yield GaugeMetricFamily("specpair_sequences_open", "Open sequences.", value=len(held))
        yield CounterMetricFamily(
            "specpair_expired_sequences",
            "Sequences closed because they were unused for the time of their lease.",
            value=held.expired_count,
        )
        refusals = CounterMetricFamily(
            "specpair_sequence_refusals", "Sequences that were not opened, by reason.", labels=["reason"]
        )
        for reason in NoRoom:
            refusals.add_metric([reason], held.refusals[reason])
        yield refusals


def add_sequence_metrics(registry: CollectorRegistry, sequences: CountedSequences) -> None:
    registry.register(SequenceCollector(sequences))
