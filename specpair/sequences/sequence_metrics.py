"""The open sequences of a service as metrics, read when they are asked for."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from specpair.sequences.sequence_limits import NoRoom


class CountedSequences(Protocol):
    """The open sequences, as far as they are counted."""

    @property
    def expired_count(self) -> int: ...
    @property
    def refusals(self) -> Mapping[NoRoom, int]: ...
    def __len__(self) -> int: ...


class SequenceCollector(Collector):
    """How many there are, how many were given up, and how many were refused."""

    def __init__(self, sequences: CountedSequences):
        self._sequences = sequences

    def collect(self) -> Iterable[Metric]:
        held = self._sequences
        yield GaugeMetricFamily("specpair_sequences_open", "Sequences that are open.", value=len(held))
        yield CounterMetricFamily(
            "specpair_expired_sequences",
            "Sequences that were closed since nobody had touched them for the time of their lease.",
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
