"""Metrics of the speedup of speculation."""

import time
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coordinator.metrics.speedup import SpeedupEstimate


class SpeedupCollector(Collector):
    """Measured and predicted speedup. Neither has a sample before rounds with and without proposals, nor long after.

    `clock` is the clock, in seconds, of the estimate's rounds.
    """

    def __init__(self, estimate: SpeedupEstimate, clock: Callable[[], float] = time.perf_counter):
        self._estimate = estimate
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        measured = GaugeMetricFamily(
            "specpair_speculation_speedup_ratio",
            "Tokens per second of recent rounds, divided by those of plain rounds; absent while "
            "unknown and when the last round is long ago.",
        )
        predicted = GaugeMetricFamily(
            "specpair_speculation_predicted_speedup_ratio",
            "Theorem 3.8 of Leviathan et al. from acceptance and cost ratio of the same rounds; absent with the other.",
        )
        speedup = self._estimate.speedup(self._clock())
        if speedup is not None:
            measured.add_metric([], speedup.measured)
            predicted.add_metric([], speedup.predicted)
        return measured, predicted
