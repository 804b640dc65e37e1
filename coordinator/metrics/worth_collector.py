"""Metrics of what proposals are worth at the present load."""

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class Worth(Protocol):
    """See `coordinator.adaptive.Worth`."""

    @property
    def break_even(self) -> float: ...
    @property
    def best_length(self) -> int | None: ...
    @property
    def gain(self) -> float | None: ...


class WorthCollector(Collector):
    """Computed at each scrape. No sample while it is unknown what passes take, or what is accepted."""

    def __init__(self, worth: Callable[[], Worth | None]):
        self._worth = worth

    def collect(self) -> Iterable[Metric]:
        families = {
            "break_even": GaugeMetricFamily(
                "specpair_speculation_break_even_acceptance",
                "Acceptance of a first token at which it is worth its time at the present load; above 1 none can be.",
            ),
            "best_length": GaugeMetricFamily(
                "specpair_speculation_best_num_tokens",
                "Tokens per proposal that give the most tokens per second at the present load; 0 if none pay.",
            ),
            "gain": GaugeMetricFamily(
                "specpair_speculation_expected_gain_ratio",
                "Expected tokens per second with that number, divided by those without proposals.",
            ),
        }
        worth = self._worth()
        for name, family in families.items():
            value = None if worth is None else getattr(worth, name)
            if value is not None:
                family.add_metric([], value)
        return families.values()
