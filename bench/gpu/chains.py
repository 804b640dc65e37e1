"""The time of a draft's step, drawn on the device, in this process: the bundled draft proposes after a context."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from bench.gpu.passes import feed, filled, seconds_of
from bench.gpu.setting import BATCHES, Setting
from bench.report import Table
from specpair.caches.holding import Holding
from specpair.engine_config import EngineConfig
from specpair.models.captured_runner import CapturedRunner
from specpair.models.chain_row import ChainRow
from specpair.models.load_runner import load_runner
from specpair.named_models import BUNDLED, resolve_model
from specpair.options import SamplingOptions
from specpair.speculation.randomness import Domain, random_bits

STEPS = 8
WAYS = {
    "greedy": (SamplingOptions(temperature=0.0), False),
    "block, T=1": (SamplingOptions(), False),
    "block, top-p": (SamplingOptions(top_p=0.9), False),
    "coupled, T=1": (SamplingOptions(), True),
}
"""What is drawn: options, and whether by the coupled rule."""


def measure_chains(setting: Setting) -> Iterator[dict[str, Any]]:
    """Milliseconds of a step in a proposal of `STEPS` tokens, the first pass left out."""
    runner, vocab_size = load_draft(setting)
    for batch in BATCHES:
        for name, (sampling, is_coupled) in WAYS.items():
            holdings = [filled(runner, setting.context) for _ in range(batch)]
            times = [
                step_seconds(runner, holdings, sampling, is_coupled, vocab_size) for _ in range(setting.repetitions + 2)
            ]
            for holding in holdings:
                runner.cache.free(holding)
            yield {"batch": batch, "drawn": name, "step_ms": 1e3 * median(times[2:])}  # the first captures


def load_draft(setting: Setting) -> tuple[CapturedRunner, int]:
    """The runner, and the size of the vocabulary."""
    length = setting.context + STEPS + 2
    config = EngineConfig(
        model=resolve_model(BUNDLED, "draft"),
        dtype=setting.dtype,  # type: ignore[arg-type]
        device=setting.device,
        runner="captured",
        cache="paged",
        max_model_len=length,
        num_blocks=max(BATCHES) * -(-length // 16),
    )
    facts, runner = load_runner(config)
    assert isinstance(runner, CapturedRunner)
    return runner, facts.vocab_size


@torch.inference_mode()
def step_seconds(
    runner: CapturedRunner, holdings: list[Holding], sampling: SamplingOptions, is_coupled: bool, vocab_size: int
) -> float:
    """The difference between a long and a short proposal, for each step that only the long one has."""
    assert runner.chains is not None
    feed(runner, holdings, 1)
    logits = torch.randn(len(holdings), vocab_size, device=runner.device)
    seconds = []
    for count in (1, STEPS):
        chains = [row_of(holding, count, sampling, is_coupled, logits.size(1)) for holding in holdings]
        for holding in holdings:
            runner.cache.append(holding, count - 1)
        assert runner.chains.miss(chains, logits.size(1)) is None
        seconds.append(seconds_of(partial(runner.chains.draw, logits, chains), runner.device))
        for holding in holdings:
            runner.cache.truncate_to(holding, holding.length - count + 1)
    for holding in holdings:
        runner.cache.truncate_to(holding, holding.length - 1)
    return (seconds[1] - seconds[0]) / (STEPS - 1)


def row_of(holding: Holding, count: int, sampling: SamplingOptions, is_coupled: bool, vocab_size: int) -> ChainRow:
    needs_bits = not is_coupled and not sampling.is_greedy
    return ChainRow(
        holding=holding,
        position=holding.length,
        count=count,
        sampling=sampling,
        is_coupled=is_coupled,
        min_confidence=1e-30 if sampling.is_greedy else 0.0,
        confidence=1.0,
        vocab_size=vocab_size,
        bits=random_bits(0, Domain.DRAFT, 1, count) if needs_bits else np.zeros(0, dtype=np.int64),
        looks=False,
        is_awaited=True,
    )


def table(rows: list[dict[str, Any]]) -> Table:
    return Table(
        title="milliseconds of a step of the bundled draft, drawn on the device",
        columns={"batch": "{}", "drawn": "{}", "step_ms|ms a step": "{:.3f}"},
        rows=rows,
    )
