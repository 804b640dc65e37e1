"""The gain of speculation as metrics."""

import time
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coordinator.metrics.speedup import SpeedupEstimate


class SpeedupCollector(Collector):
    """Measured and predicted; neither has a sample before rounds with and without proposals were seen, nor long after.

    `clock` gives the seconds by which the estimate's rounds are told.
    """

    def __init__(self, estimate: SpeedupEstimate, clock: Callable[[], float] = time.perf_counter):
        self._estimate = estimate
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        measured = GaugeMetricFamily(
            "specpair_speculation_speedup_ratio",
            "Tokens per second of the last rounds over those that rounds without proposals would give; absent while "
            "that is unknown, and when the last round is long ago.",
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
