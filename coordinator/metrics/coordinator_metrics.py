"""All metrics of one coordinator."""

from collections.abc import Callable, Mapping

from prometheus_client import Gauge
from prometheus_client.registry import CollectorRegistry

from coordinator.config import MAX_SPECULATIVE_TOKENS
from coordinator.metrics.ahead_metrics import AheadCollector, AheadMetrics, AheadReadings
from coordinator.metrics.beam_metrics import BeamMetrics
from coordinator.metrics.finished_round import FinishedRound
from coordinator.metrics.instance_collector import InstanceCollector, ServiceReadings
from coordinator.metrics.queue_metrics import QueueMetrics
from coordinator.metrics.request_metrics import RequestMetrics
from coordinator.metrics.round_metrics import RoundMetrics
from coordinator.metrics.shadow_metrics import ShadowMetrics
from coordinator.metrics.speedup import SpeedupEstimate
from coordinator.metrics.speedup_collector import SpeedupCollector
from coordinator.metrics.tree_metrics import TreeMetrics
from coordinator.metrics.worth_collector import Worth, WorthCollector


class CoordinatorMetrics:
    """Metrics of the queue, requests, rounds, the speedup of speculation, and the two services."""

    def __init__(self, registry: CollectorRegistry | None = None, longest: int = MAX_SPECULATIVE_TOKENS):
        """Without a `registry` it makes its own. Proposals have at most `longest` tokens."""
        self.registry = CollectorRegistry() if registry is None else registry
        self.queue = QueueMetrics(self.registry)
        self.requests = RequestMetrics(self.registry)
        self.rounds = RoundMetrics(self.registry, longest)
        self.ahead = AheadMetrics(self.registry)
        self.beams = BeamMetrics(self.registry)
        self.trees = TreeMetrics(self.registry)
        self.shadows = ShadowMetrics(self.registry)
        self.speedup = SpeedupEstimate()
        self.registry.register(SpeedupCollector(self.speedup))

    def add_round(self, ended: FinishedRound) -> None:
        """Counts a judged round."""
        self.rounds.add(ended)
        self.ahead.add(ended)
        self.trees.add(ended)

    def watch_ahead(self, read: Callable[[], AheadReadings]) -> None:
        """Adds the metrics of what the pair's services did ahead; not called without a draft."""
        self.registry.register(AheadCollector(read))

    def watch_instances(self, services: Mapping[str, ServiceReadings]) -> None:
        """Adds the metrics of the instances of each service."""
        self.registry.register(InstanceCollector(services))

    def watch_worth(self, worth: Callable[[], Worth | None]) -> None:
        """Adds the metrics of what proposals are worth; not called without a draft."""
        self.registry.register(WorthCollector(worth))

    def watch_target(self, is_up: Callable[[], bool]) -> None:
        """Adds the gauge of the target; `is_up` returns whether it is connected."""
        help_text = "1 if the target is connected, else 0."
        Gauge("specpair_target_up", help_text, registry=self.registry).set_function(is_up)

    def watch_draft(self, is_up: Callable[[], bool]) -> None:
        """Adds the gauge of the draft; not called without a draft."""
        help_text = "1 if a draft is connected whose tokens the target can judge, else 0; absent without a draft."
        Gauge("specpair_draft_up", help_text, registry=self.registry).set_function(is_up)
