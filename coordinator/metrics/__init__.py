"""What the coordinator counts, for Prometheus. Every number comes from the event loop.

Labels are bounded: drafters, rules, positions, kinds of rounds, outcomes; never anything of a single request. A request
with a trace shows in exemplars.
"""

from coordinator.metrics.coordinator_metrics import CoordinatorMetrics
from coordinator.metrics.finished_round import FinishedRound, RoundKind
from coordinator.metrics.instance_collector import InstanceReading, ServiceReadings
from coordinator.metrics.request_metrics import Outcome, OutputSample

__all__ = [
    "CoordinatorMetrics",
    "FinishedRound",
    "InstanceReading",
    "Outcome",
    "OutputSample",
    "RoundKind",
    "ServiceReadings",
]
