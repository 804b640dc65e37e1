"""Passes are measured once after loading, on scratch sequences that leave nothing behind."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from specpair.caches.attention import Variant
from specpair.caches.cache import KeyValueCache, LayerShape
from specpair.model_info import PassCost
from specpair.models import pass_costs
from specpair.models.batch import Batch, PassOutput
from specpair.models.model_facts import ModelFacts
from specpair.models.pass_costs import MOST_SECONDS, TOKEN_COUNTS, cached_token_seconds, measure_passes
from tests.unit.specpair.engine.test_preemption import make_cache

PASS, ROW = 0.001, 0.0001
"""Seconds on the clock of the test."""


@dataclass
class TimedRunner:
    """Passes take time on a clock of their own; the first of each size takes longer."""

    cache: KeyValueCache
    factor: float = 1.0
    now: float = 0.0
    seen: set[int] = field(default_factory=set)
    description: str = "timed"
    no_trees: str = ""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def forward(self, batch: Batch) -> PassOutput:
        rows = len(batch.rows)
        assert rows == len(batch.token_ids) and max(batch.token_ids) < 7
        self.now += self.factor * (PASS + ROW * rows) * (1 if rows in self.seen else 5)
        self.seen.add(rows)
        return PassOutput(torch.zeros(rows, 7))


def measured(monkeypatch: pytest.MonkeyPatch, block_count: int, factor: float = 1.0) -> tuple[Any, dict[int, float]]:
    runner = TimedRunner(make_cache("paged", block_count), factor)
    monkeypatch.setattr(pass_costs.time, "perf_counter", lambda: runner.now)
    costs = measure_passes(runner, 7)
    return runner, {cost.token_count: cost.seconds for cost in costs}


def test_every_size_is_measured_warm_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, costs = measured(monkeypatch, 1000)
    assert costs == {rows: pytest.approx(PASS + ROW * rows) for rows in TOKEN_COUNTS}
    assert list(costs) == sorted(costs)
    assert runner.cache.free_block_count == runner.cache.block_count
    runner.cache.check_integrity()


def test_a_slow_model_is_measured_at_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, costs = measured(monkeypatch, 1000, factor=40.0)
    assert 1 < len(costs) < len(TOKEN_COUNTS)
    _, slowest = measured(monkeypatch, 1000, factor=1e4)
    assert list(slowest) == [1]
    assert runner.now < 3 * MOST_SECONDS


def test_a_small_cache_limits_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = TimedRunner(make_cache("paged", 1000))
    blocks = -(-4 // runner.cache.block_size)
    _, costs = measured(monkeypatch, 2 * blocks)
    assert list(costs) == [rows for rows in TOKEN_COUNTS if rows <= 8]
    _, none = measured(monkeypatch, blocks - 1)
    assert none == {}


def facts_of(packing: str = "none", device: str = "cpu", windows: int = 0) -> ModelFacts:
    """A million parameters; a token takes 2,000 bytes in the cache, in ten layers of which so many have a window."""
    shape, plain = LayerShape(heads=2, key_size=25, value_size=25), Variant(scaling=1.0)
    return ModelFacts(
        name="model",
        architecture="LlamaForCausalLM",
        parameter_count=1_000_000,
        dtype=torch.bfloat16,
        packing=packing,
        device=torch.device(device),
        layers=dict.fromkeys(range(10), shape),
        variants={layer: Variant(scaling=1.0, sliding_window=64) if layer < windows else plain for layer in range(10)},
        feature_layer_count=0,
        vocab_size=7,
        max_model_len=100,
        eos_token_ids=[],
        tokenizer=None,
    )


@pytest.mark.parametrize(("packing", "bits"), [("none", 16), ("int8", 8), ("int4", 4)])
def test_a_cached_token_takes_as_long_as_so_many_bytes_of_weights(packing: str, bits: int) -> None:
    costs = [PassCost(token_count=1, seconds=0.01)]
    assert cached_token_seconds(facts_of(packing), costs) == pytest.approx(0.01 * 2_000 / (1_000_000 * bits / 8))
    assert cached_token_seconds(facts_of(packing), []) == 0.0


def test_windows_are_not_read_whole_and_accelerators_are_not_guessed_at() -> None:
    costs = [PassCost(token_count=1, seconds=0.01)]
    whole = cached_token_seconds(facts_of(), costs)
    assert cached_token_seconds(facts_of(windows=4), costs) == pytest.approx(0.6 * whole)
    assert cached_token_seconds(facts_of(device="cuda"), costs) == 0.0
