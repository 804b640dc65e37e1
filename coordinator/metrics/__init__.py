"""What the coordinator counts, for Prometheus. Every number comes from the event loop.

Labels are bounded: drafters, rules, positions, kinds of rounds, outcomes; never anything of a single request. A request
with a trace shows in exemplars.
"""

from coordinator.metrics.coordinator_metrics import CoordinatorMetrics
from coordinator.metrics.instance_collector import InstanceReading, ServiceReadings
from coordinator.metrics.request_metrics import Outcome, OutputSample
from coordinator.metrics.round_metrics import RoundKind, RoundSample
from coordinator.metrics.speedup import MeasuredRound

__all__ = [
    "CoordinatorMetrics",
    "InstanceReading",
    "MeasuredRound",
    "Outcome",
    "OutputSample",
    "RoundKind",
    "RoundSample",
    "ServiceReadings",
]
