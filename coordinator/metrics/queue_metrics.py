"""Metrics of waiting and refused requests."""

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import CollectorRegistry

from coordinator.admission.places import Refusal
from coordinator.metrics.exemplar import observe

# vLLM's buckets, and smaller ones before them: most requests do not wait.
QUEUE_TIME_BUCKETS = (
    *(0.001, 0.01, 0.05, 0.1, 0.2),
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
)


class QueueMetrics:
    """Waiting requests, their waiting times, and refusals."""

    def __init__(self, registry: CollectorRegistry):
        self._waiting = Gauge("specpair_num_requests_waiting", "Requests waiting for their places.", registry=registry)
        self._queue_time = Histogram(
            "specpair_request_queue_time_seconds",
            "Time from the arrival of a request until it got its places.",
            buckets=QUEUE_TIME_BUCKETS,
            registry=registry,
        )
        counter = Counter("specpair_request_refusals", "Refused requests, by reason.", ["reason"], registry=registry)
        self._refusals = {reason: counter.labels(reason.value) for reason in Refusal}

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Takes a function that returns the number of waiting requests."""
        self._waiting.set_function(count)

    def add_queue_time(self, elapsed: float) -> None:
        """Counts a request that got its places, `elapsed` seconds after its arrival."""
        observe(self._queue_time, elapsed)

    def add_refusal(self, reason: Refusal) -> None:
        """Counts a refused request."""
        self._refusals[reason].inc()
