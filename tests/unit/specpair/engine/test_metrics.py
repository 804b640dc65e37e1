"""Metrics of an engine: what passes held, where cache blocks are."""

import pytest
import torch
from prometheus_client.registry import CollectorRegistry

from specpair.caches.cache import BlockCounts, KeyValueCache, LayerShape
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.holding import Holding
from specpair.caches.paged_cache import PagedCache
from specpair.engine.metrics import EngineCollector, histogram
from specpair.engine.statistics import EngineStatistics, Tally

BLOCKS, BLOCK_SIZE = 8, 4
CACHES = {"paged": PagedCache, "contiguous": ContiguousCache}


def make_cache(kind: str) -> KeyValueCache:
    return CACHES[kind]({0: LayerShape(1, 2, 2)}, BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu"))


def opened(cache: KeyValueCache, length: int) -> Holding:
    holding = cache.open([])
    cache.append(holding, length)
    return holding


class CountedEngine:
    def __init__(self, cache: KeyValueCache):
        self.statistics = EngineStatistics()
        self.cache = cache


def test_samples_at_the_end_of_a_bucket_belong_to_it() -> None:
    tally = Tally((1, 2, 4))
    for value in (1, 2, 2, 3, 9):
        tally.add(value)
    samples = {s.labels.get("le", s.name): s.value for s in histogram("n", "d", tally).samples}
    assert samples == {"1.0": 1, "2.0": 3, "4.0": 4, "+Inf": 5, "n_count": 5, "n_sum": 17}


def test_pass_is_split_into_prefill_and_decode() -> None:
    engine = CountedEngine(make_cache("paged"))
    engine.statistics.add_pass(3, 40, 6, 0.01)
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    value = registry.get_sample_value
    assert value("specpair_model_tokens_total", {"kind": "decode"}) == 6
    assert value("specpair_model_tokens_total", {"kind": "prefill"}) == 34
    assert value("specpair_model_batch_sequences_sum") == 3
    assert value("specpair_model_batch_tokens_bucket", {"le": "64.0"}) == 1
    assert value("specpair_model_forward_time_seconds_sum") == 0.01


@pytest.mark.parametrize("kind", CACHES)
def test_blocks_used_kept_and_given_up(kind: str) -> None:
    cache = make_cache(kind)
    holding = opened(cache, 5)
    assert cache.block_counts() == BlockCounts(used=2, shared=0, kept=0, free=6, evicted=0)
    cache.keep(holding, list(range(5)))
    cache.free(holding)
    kept = cache.block_counts()
    assert (kept.used, kept.kept + kept.free, kept.evicted) == (0, BLOCKS, 0)
    assert kept.kept >= 1
    opened(cache, BLOCKS * BLOCK_SIZE)
    assert cache.block_counts() == BlockCounts(used=BLOCKS, shared=0, kept=0, free=0, evicted=kept.kept)


def test_blocks_that_several_hold_are_shared() -> None:
    cache = make_cache("paged")
    first = opened(cache, 8)
    second = cache.fork(first, 6)
    third = cache.fork(first, 4)
    assert cache.block_counts().shared == 2
    cache.append(second, 1)  # its last block is written to, so it gets a copy
    assert cache.block_counts() == BlockCounts(used=3, shared=1, kept=0, free=5, evicted=0)
    cache.free(third)
    assert cache.block_counts().shared == 1
    cache.free(second)
    assert cache.block_counts() == BlockCounts(used=2, shared=0, kept=0, free=6, evicted=0)
    cache.check_integrity()
