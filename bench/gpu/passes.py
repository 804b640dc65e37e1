"""Passes of captured graphs beside their floor, and plain decoding beside transformers, in this process.

The model has random weights: times do not depend on them. The floor of a pass is the time to read the weights once at
the bandwidth that a copy reaches.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.gpu.setting import BATCHES, VERIFIED, Setting
from bench.report import Table
from specpair.caches.holding import Holding, Segment
from specpair.engine_config import EngineConfig
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.models.runner import Runner

COPIED = 1 << 30
"""Bytes that are copied to find the bandwidth of a GPU."""
MARGIN = 8


def load(folder: str, setting: Setting, runner: Any) -> Runner:
    """The model by this runner, with room for the largest batch. Both are in memory at once."""
    length = setting.context + setting.tokens + MARGIN
    config = EngineConfig(
        model=folder,
        dtype=setting.dtype,  # type: ignore[arg-type]
        device=setting.device,
        runner=runner,
        cache="paged",
        max_model_len=length,
        num_blocks=max(BATCHES) * -(-length // 16),
    )
    return load_runner(config)[1]


def copied_bytes_per_second(device: torch.device) -> float:
    """Bytes read and written per second by the fastest of some copies."""
    source = torch.empty(COPIED if device.type == "cuda" else COPIED >> 6, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = min(seconds_of(lambda: target.copy_(source), device) for _ in range(10))
    return 2 * source.numel() / seconds


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_passes(runners: dict[str, Runner], setting: Setting, floor: float) -> Iterator[dict[str, Any]]:
    """Median seconds of a pass after `context` tokens, with the choice of the likeliest token on the device."""
    for batch in BATCHES:
        for rows in VERIFIED:
            row: dict[str, Any] = {"batch": batch, "rows": rows}
            for name, runner in runners.items():
                holdings = [filled(runner, setting.context) for _ in range(batch)]
                times = [verify_seconds(runner, holdings, rows) for _ in range(setting.repetitions + 2)]
                row[name] = 1e3 * median(times[2:])  # the first captures
                for holding in holdings:
                    runner.cache.free(holding)
            yield {**row, "floor": 1e3 * floor, "ratio": row["captured"] / (1e3 * floor)}


def filled(runner: Runner, count: int) -> Holding:
    holding = runner.cache.open([])
    feed(runner, [holding], count)
    return holding


def feed(runner: Runner, holdings: list[Holding], count: int) -> list[int]:
    """Feeds so many tokens to each sequence, and returns the likeliest token after each of them."""
    segments = [Segment(holding, holding.length, count) for holding in holdings]
    for holding in holdings:
        runner.cache.append(holding, count)
    ids = [1 + position % 7 for segment in segments for position in range(segment.start, segment.end)]
    chosen: list[int] = (
        runner.forward(Batch.of_chains(segments, ids, [count] * len(segments))).logits.argmax(1).tolist()
    )
    return chosen


def verify_seconds(runner: Runner, holdings: list[Holding], rows: int) -> float:
    seconds = seconds_of(lambda: feed(runner, holdings, rows), runner.device)
    for holding in holdings:
        runner.cache.truncate_to(holding, holding.length - rows)
    return seconds


def measure_decoding(runner: Runner, folder: str, setting: Setting) -> Iterator[dict[str, Any]]:
    """Tokens per second without speculation, in process, beside `generate` with its growing and its static cache."""
    dtype = getattr(torch, setting.dtype)
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = loaded.to(setting.device)
    for batch in BATCHES:
        holdings = [filled(runner, setting.context) for _ in range(batch)]

        def decode(holdings: list[Holding] = holdings) -> None:
            for _ in range(setting.tokens):
                feed(runner, holdings, 1)

        seconds = seconds_of(decode, runner.device)
        for holding in holdings:
            runner.cache.free(holding)
        prompts = torch.ones(batch, setting.context, dtype=torch.int64, device=setting.device)
        peers = {
            name: generate_seconds(model, prompts, setting.tokens, static)
            for name, static in (("dynamic", False), ("static", True))
        }
        rate = {name: batch * setting.tokens / value for name, value in {"specpair": seconds, **peers}.items()}
        yield {"batch": batch, **rate, "ratio": rate["specpair"] / max(rate["dynamic"], rate["static"])}


def generate_seconds(model: Any, prompts: torch.Tensor, count: int, is_static: bool) -> float:
    """Seconds of `count` decoding steps: a run with them less one that only reads the prompt."""

    def run(tokens: int) -> float:
        options = {"cache_implementation": "static", "disable_compile": True} if is_static else {}
        return seconds_of(
            lambda: model.generate(
                prompts, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0, **options
            ),
            prompts.device,
        )

    run(2)
    return max(run(count + 1) - run(1), 1e-9)


def pass_table(rows: list[dict[str, Any]], setting: Setting) -> Table:
    return Table(
        title=f"milliseconds of a pass after {setting.context} tokens: {setting.shape}, {setting.dtype}",
        columns={
            "batch": "{}",
            "rows|rows a sequence": "{}",
            "captured": "{:.3f}",
            "plain": "{:.3f}",
            "floor": "{:.3f}",
            "ratio|captured / floor": "{:.2f}",
        },
        rows=rows,
    )


def decoding_table(rows: list[dict[str, Any]]) -> Table:
    return Table(
        title="tokens per second without speculation",
        columns={
            "batch": "{}",
            "specpair|specpair, in process": "{:.0f}",
            "dynamic|transformers": "{:.0f}",
            "static|static cache": "{:.0f}",
            "ratio|specpair / best": "{:.2f}",
        },
        rows=rows,
    )
