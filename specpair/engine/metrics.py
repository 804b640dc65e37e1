"""An engine's metrics, read at each scrape, at no cost for the device thread."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from specpair.caches.cache import BlockCounts, KeyValueCache
from specpair.engine.statistics import EngineStatistics, Tally
from specpair.models.chain_miss import ChainMiss
from specpair.models.graph_miss import GraphMiss


class Counted(Protocol):
    """The parts of an engine that metrics read."""

    @property
    def statistics(self) -> EngineStatistics: ...
    @property
    def cache(self) -> KeyValueCache: ...


class EngineCollector(Collector):
    """An engine's metrics. A scrape during a pass may mix the numbers of two successive passes."""

    def __init__(self, engine: Counted):
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        yield from passes(self._engine.statistics)
        yield silence(self._engine.statistics)
        yield from cache(self._engine.cache.block_counts(), self._engine.statistics)


def passes(statistics: EngineStatistics) -> Iterable[Metric]:
    """Sizes and times of forward passes."""
    yield histogram("specpair_model_batch_sequences", "Sequences in a forward pass.", statistics.batch_sequences)
    yield histogram("specpair_model_batch_tokens", "Tokens in a forward pass.", statistics.batch_tokens)
    yield histogram(
        "specpair_model_forward_time_seconds",
        "Time of a forward pass, including sampling or verification.",
        statistics.forward_time,
    )
    yield histogram(
        "specpair_model_queue_time_seconds",
        "Time that a call waited for its first forward pass.",
        statistics.queue_time,
    )
    tokens = CounterMetricFamily(
        "specpair_model_tokens",
        "Tokens fed to the model: decode if their logits were used (proposed, verified, scored), else prefill.",
        labels=["kind"],
    )
    tokens.add_metric(["prefill"], statistics.prefill_tokens)
    tokens.add_metric(["decode"], statistics.decode_tokens)
    yield tokens
    yield CounterMetricFamily(
        "specpair_model_encoded_inputs",
        "Inputs that the encoder of an encoder-decoder model has read, each in a pass of its own.",
        value=statistics.encoded_inputs,
    )
    yield by_reason(
        "specpair_graph_misses",
        "Forward passes that --runner captured left to the plain runner, by the reason.",
        {reason: statistics.graph_misses.get(reason, 0) for reason in GraphMiss},
    )
    yield by_reason(
        "specpair_chain_misses",
        "Proposals that a draft whose runner can draw whole ones drew token by token, by the reason.",
        {reason: statistics.chain_misses.get(reason, 0) for reason in ChainMiss},
    )


def by_reason(name: str, documentation: str, counts: Mapping[str, int]) -> Metric:
    """A counter for each reason."""
    family = CounterMetricFamily(name, documentation, labels=["reason"])
    for reason, count in counts.items():
        family.add_metric([reason], count)
    return family


def silence(statistics: EngineStatistics) -> Metric:
    """How long the device thread has been silent."""
    return GaugeMetricFamily(
        "specpair_device_silence_seconds",
        "Time for which the device thread has given no sign of life; it gives one between forward passes.",
        value=statistics.silence,
    )


def cache(counts: BlockCounts, statistics: EngineStatistics) -> Iterable[Metric]:
    """Cache blocks by state, and evictions: of kept blocks and of blocks taken from open sequences."""
    blocks = GaugeMetricFamily(
        "specpair_cache_blocks",
        "Cache blocks by state: used by sequences, shared (those used by several), kept for later sequences, free. "
        "used + kept + free are all blocks.",
        labels=["state"],
    )
    for state in ("used", "shared", "kept", "free"):
        blocks.add_metric([state], getattr(counts, state))
    yield blocks
    yield CounterMetricFamily(
        "specpair_cache_evictions",
        "Cache blocks whose content was evicted for other sequences; it is recomputed when needed.",
        value=counts.evicted + statistics.evicted_blocks,
    )
    yield CounterMetricFamily(
        "specpair_num_preemptions",
        "Times that an open sequence lost its whole cache to others; its tokens are fed again when it continues.",
        value=statistics.preemptions,
    )


def histogram(name: str, documentation: str, tally: Tally) -> HistogramMetricFamily:
    """The tally as a Prometheus histogram: each bucket counts all samples up to its bound."""
    buckets: list[tuple[str, float]] = []
    reached = 0
    for bound, count in zip((*map(float, tally.bounds), float("inf")), list(tally.counts), strict=True):
        reached += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), reached))
    return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=tally.total)
