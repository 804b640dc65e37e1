"""The coordinator's Prometheus metrics. All are written from the event loop.

Labels are bounded: drafters, rules, positions, kinds of rounds, outcomes; never data of a single request. Exemplars
name the trace of a request that has one.
"""

from coordinator.metrics.ahead_metrics import AheadReadings
from coordinator.metrics.coordinator_metrics import CoordinatorMetrics
from coordinator.metrics.finished_round import RoundKind
from coordinator.metrics.instance_collector import InstanceReading, ServiceReadings
from coordinator.metrics.request_metrics import Outcome, OutputSample

__all__ = [
    "AheadReadings",
    "CoordinatorMetrics",
    "InstanceReading",
    "Outcome",
    "OutputSample",
    "RoundKind",
    "ServiceReadings",
]
