"""Metrics of shadow proposals, which no target sees."""

from prometheus_client import Counter
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.round_metrics import SPECULATION_LABELS, speculation_labels
from specpair.options import Drafter, Rule


class ShadowMetrics:
    """Counters of tokens that were drawn beside plain rounds, and compared with those that followed."""

    def __init__(self, registry: CollectorRegistry):
        self._asked = Counter(
            "specpair_shadow_tokens",
            "Tokens that were asked for in shadow proposals, which are drawn beside plain rounds to learn whether "
            "proposals would pay.",
            SPECULATION_LABELS,
            registry=registry,
        )
        self._accepted = Counter(
            "specpair_shadow_accepted_tokens",
            "Those that came to be committed in their places, with all before them.",
            SPECULATION_LABELS,
            registry=registry,
        )
        for drafter in Drafter:  # a series that begins with its first count hides it from `rate`
            for rule in Rule:
                self.add(drafter, rule, 0, 0)

    def add(self, drafter: Drafter | None, rule: Rule, asked: int, accepted: int) -> None:
        """Counts one shadow proposal."""
        labels = speculation_labels(drafter, rule)
        self._asked.labels(*labels).inc(asked)
        self._accepted.labels(*labels).inc(accepted)
