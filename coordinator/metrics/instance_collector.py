"""Metrics of the instances of draft and target, and of recoveries."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class InstanceReading(NamedTuple):
    """The current state of one instance."""

    address: str
    is_there: bool
    """Whether it serves and fits the pair."""
    sequence_count: int
    """Sequences placed there."""


class ServiceReadings(NamedTuple):
    """Where to read the state of one service."""

    instances: Callable[[], Iterable[InstanceReading]]
    recoveries: Mapping[Any, int]
    """Number of recoveries by kind; every kind is present from the start."""


class InstanceCollector(Collector):
    """Reads the pools at each scrape. Addresses are the configured ones, or those that the names resolve to."""

    def __init__(self, services: Mapping[str, ServiceReadings]):
        """`services` is keyed by the name of the service."""
        self._services = services

    def collect(self) -> Iterable[Metric]:
        labels = ["service", "address"]
        up = GaugeMetricFamily("specpair_instance_up", "1 if it serves and belongs to the pair.", labels=labels)
        sequences = GaugeMetricFamily("specpair_instance_sequences", "Sequences that are placed there.", labels=labels)
        recoveries = CounterMetricFamily(
            "specpair_recoveries",
            "Recoveries from failures: a call repeated, a sequence reopened, or moved to another instance.",
            labels=["service", "kind"],
        )
        for service, readings in self._services.items():
            for reading in readings.instances():
                up.add_metric([service, reading.address], reading.is_there)
                sequences.add_metric([service, reading.address], reading.sequence_count)
            for kind, count in readings.recoveries.items():
                recoveries.add_metric([service, kind], count)
        return up, sequences, recoveries
