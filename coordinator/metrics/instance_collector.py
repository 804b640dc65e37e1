"""The instances of draft and target, and what their failures cost, as metrics."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class InstanceReading(NamedTuple):
    """One instance as the coordinator sees it now."""

    address: str
    is_there: bool
    """It serves, and was found to belong to the pair."""
    sequence_count: int
    """Sequences that are placed there."""


class ServiceReadings(NamedTuple):
    """How to ask about one service."""

    instances: Callable[[], Iterable[InstanceReading]]
    recoveries: Mapping[Any, int]
    """Times that something was made good, by its kind; every kind is there from the start."""


class InstanceCollector(Collector):
    """Reads the pools when somebody asks. Addresses are those of the configuration, or behind its names at present."""

    def __init__(self, services: Mapping[str, ServiceReadings]):
        """By the name of the service."""
        self._services = services

    def collect(self) -> Iterable[Metric]:
        labels = ["service", "address"]
        up = GaugeMetricFamily("specpair_instance_up", "1 if it serves and belongs to the pair.", labels=labels)
        sequences = GaugeMetricFamily("specpair_instance_sequences", "Sequences that are placed there.", labels=labels)
        recoveries = CounterMetricFamily(
            "specpair_recoveries",
            "Failures made good: a call repeated, a sequence opened again, or moved to another instance.",
            labels=["service", "kind"],
        )
        for service, readings in self._services.items():
            for reading in readings.instances():
                up.add_metric([service, reading.address], reading.is_there)
                sequences.add_metric([service, reading.address], reading.sequence_count)
            for kind, count in readings.recoveries.items():
                recoveries.add_metric([service, kind], count)
        return up, sequences, recoveries
