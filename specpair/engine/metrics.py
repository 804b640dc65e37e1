"""An engine's numbers as metrics, read when they are asked for: the device thread pays nothing for it."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from specpair.caches.cache import BlockCounts, KeyValueCache
from specpair.engine.statistics import EngineStatistics, Tally


class Counted(Protocol):
    """The engine, as far as it is counted."""

    @property
    def statistics(self) -> EngineStatistics: ...
    @property
    def cache(self) -> KeyValueCache: ...


class EngineCollector(Collector):
    """An engine's numbers. Those that the device thread writes meanwhile may be of two successive passes."""

    def __init__(self, engine: Counted):
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        yield from passes(self._engine.statistics)
        yield silence(self._engine.statistics)
        yield from cache(self._engine.cache.block_counts(), self._engine.statistics)


def passes(statistics: EngineStatistics) -> Iterable[Metric]:
    """What forward passes held and took."""
    yield histogram("specpair_model_batch_sequences", "Sequences in a forward pass.", statistics.batch_sequences)
    yield histogram("specpair_model_batch_tokens", "Tokens in a forward pass.", statistics.batch_tokens)
    yield histogram(
        "specpair_model_forward_time_seconds",
        "Time of a forward pass, with what is made of its logits: sampling, verification.",
        statistics.forward_time,
    )
    yield histogram(
        "specpair_model_queue_time_seconds",
        "Time that a call waited for its first forward pass.",
        statistics.queue_time,
    )
    tokens = CounterMetricFamily(
        "specpair_model_tokens",
        "Tokens fed: decode are those whose logits were taken (proposed, verified, scored), prefill all others.",
        labels=["kind"],
    )
    tokens.add_metric(["prefill"], statistics.prefill_tokens)
    tokens.add_metric(["decode"], statistics.decode_tokens)
    yield tokens


def silence(statistics: EngineStatistics) -> Metric:
    """How long the device has been at one thing."""
    return GaugeMetricFamily(
        "specpair_device_silence_seconds",
        "Time for which the device thread has given no sign of life, which it does between forward passes.",
        value=statistics.silence,
    )


def cache(counts: BlockCounts, statistics: EngineStatistics) -> Iterable[Metric]:
    """Where the cache's blocks are, and how many were given up: kept ones, and those taken from open sequences."""
    blocks = GaugeMetricFamily(
        "specpair_cache_blocks",
        "Cache blocks: used by sequences, those among them that several share, kept for later ones, free. "
        "used + kept + free are all.",
        labels=["state"],
    )
    for state in ("used", "shared", "kept", "free"):
        blocks.add_metric([state], getattr(counts, state))
    yield blocks
    yield CounterMetricFamily(
        "specpair_cache_evictions",
        "Cache blocks whose content was given up for other sequences; what is wanted again is fed again.",
        value=counts.evicted + statistics.evicted_blocks,
    )
    yield CounterMetricFamily(
        "specpair_num_preemptions",
        "Times that an open sequence gave its whole cache up for others; its tokens are fed again when it goes on.",
        value=statistics.preemptions,
    )


def histogram(name: str, documentation: str, tally: Tally) -> HistogramMetricFamily:
    """The tally as Prometheus wants it: each bucket counts all samples up to its end."""
    buckets: list[tuple[str, float]] = []
    reached = 0
    for bound, count in zip((*map(float, tally.bounds), float("inf")), list(tally.counts), strict=True):
        reached += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), reached))
    return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=tally.total)
