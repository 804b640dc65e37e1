"""`python -m bench.determinism`: the cost of the deterministic mode, and how often near-ties flip without it.

In this process, on the bundled target: the plain and the deterministic runner share its weights and take turns.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from torch import Tensor

from bench.passes import feed
from bench.prompts import held_out_prompts
from bench.report import save
from specpair.caches.holding import Holding
from specpair.engine_config import EngineConfig
from specpair.models.aligned_runner import CHUNK_SIZE, AlignedRunner
from specpair.models.captured_runner import CapturedRunner
from specpair.models.load_runner import choose_runners
from specpair.models.loading import load as load_model
from specpair.models.model_cache import make_cache
from specpair.models.runner import Runner
from specpair.named_models import BUNDLED, resolve_model

Dtype = Literal["float32", "bfloat16"]
PROMPT_TOKENS = 64
PREFILL_TOKENS = 512
POSITION = 300
"""Where verification is timed first; the repetitions go through all positions within a chunk."""
COMPANY = 16
K = 5


@dataclass(frozen=True, kw_only=True)
class Runners:
    """Both kinds of runner over one model and one cache."""

    plain: Runner
    deterministic: Runner

    def items(self) -> Iterator[tuple[str, Runner]]:
        yield "plain", self.plain
        yield "deterministic", self.deterministic


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Greedy tokens after a prompt, and the logits `[tokens, vocabulary]` that chose them."""

    token_ids: list[int]
    logits: Tensor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.determinism", description=__doc__)
    parser.add_argument("--model", default=BUNDLED, help="folder or Hugging Face id (default: the bundled target)")
    parser.add_argument("--repeats", type=int, default=32, help="timed passes of each kind (default 32)")
    parser.add_argument("--prompts", type=int, default=16, help="number of held-out prompts (default 16)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate per prompt (default 64)")
    parser.add_argument(
        "--bfloat16-tokens", type=int, default=256, help="tokens to generate in bfloat16, in total (default 256)"
    )
    arguments = parser.parse_args()
    model = resolve_model(arguments.model, "target")
    prompts = tokenized_prompts(model, arguments.prompts)
    runners = load(model, "float32")
    costs = list(measure_costs(runners, prompts, arguments.repeats))
    flips = [*count_flips("float32", runners, prompts, arguments.tokens)]
    if arguments.bfloat16_tokens:
        few = prompts[:COMPANY]
        flips += count_flips("bfloat16", load(model, "bfloat16"), few, arguments.bfloat16_tokens // len(few))
    print_tables(costs, flips)
    save("determinism", threads=torch.get_num_threads(), chunk_size=CHUNK_SIZE, costs=costs, flips=flips)


def load(model: str, dtype: Dtype) -> Runners:
    config = EngineConfig(model=model, dtype=dtype)
    loaded = load_model(config)
    kind = choose_runners(config, loaded.model)[0]
    cache = make_cache(config, loaded.facts, is_captured=kind is CapturedRunner)
    plain = kind(loaded, cache)
    return Runners(plain=plain, deterministic=AlignedRunner(loaded, cache))


def tokenized_prompts(model: str, count: int) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    return [tokenizer.encode(text).ids[:PROMPT_TOKENS] for text in held_out_prompts(count)]


def measure_costs(runners: Runners, prompts: list[list[int]], repeats: int) -> Iterator[dict[str, object]]:
    """One row for each kind of pass; a `speed_ratio` above 1 means that deterministic is faster than plain."""
    text = [token for prompt in prompts for token in prompt] * (1 + PREFILL_TOKENS // PROMPT_TOKENS)
    prefill = text[:PREFILL_TOKENS]
    yield compare(
        f"prefill of {PREFILL_TOKENS}", runners, repeats // 8, lambda runner, _: time_prefill(runner, prefill)
    )
    for batch_size in (1, 4):
        cache = runners.plain.cache
        holdings = [cache.open([]) for _ in range(batch_size)]
        feed(runners.plain, holdings, [text[:POSITION]] * batch_size, rows=0)
        for k in (0, K):
            chunks = [text[: k + 1]] * batch_size

            def verify(runner: Runner, repeat: int, holdings: Any = holdings, chunks: Any = chunks) -> float:
                return time_verification(runner, holdings, chunks, POSITION + repeat % CHUNK_SIZE)

            yield compare(f"K = {k}, batch {batch_size}", runners, repeats, verify)
        for holding in holdings:
            cache.free(holding)


def compare(name: str, runners: Runners, repeats: int, run: Callable[[Runner, int], float]) -> dict[str, object]:
    """Both runners in turn; medians."""
    times: dict[str, list[float]] = {kind: [] for kind, _ in runners.items()}
    for repeat in range(max(2, repeats) + 1):
        for kind, runner in runners.items():
            times[kind].append(run(runner, repeat))
    plain, deterministic = (median(times[kind][1:]) for kind in times)  # the first warms up
    return {
        "pass": name,
        "plain_ms": 1000 * plain,
        "deterministic_ms": 1000 * deterministic,
        "speed_ratio": plain / deterministic,
    }


def time_prefill(runner: Runner, token_ids: list[int]) -> float:
    """Seconds for the prefill of a prompt."""
    holding = runner.cache.open([])
    started = time.perf_counter()
    feed(runner, [holding], [token_ids], rows=1)
    elapsed = time.perf_counter() - started
    runner.cache.free(holding)
    return elapsed


def time_verification(runner: Runner, holdings: list[Holding], chunks: list[list[int]], position: int) -> float:
    """Seconds of one pass that feeds a chunk to each sequence after `position` and computes all rows."""
    for holding in holdings:
        runner.cache.truncate_to(holding, position)
    started = time.perf_counter()
    feed(runner, holdings, chunks, rows=len(chunks[0]))
    return time.perf_counter() - started


def count_flips(dtype: Dtype, runners: Runners, prompts: list[list[int]], count: int) -> Iterator[dict[str, object]]:
    """For each runner, compares the greedy choices of a sequence alone with those in a batch.

    Alone, each token is a pass of one row. In a batch, 16 sequences verify K tokens of the same texts in one pass.
    """
    for kind, runner in runners.items():
        alone = [continue_alone(runner, prompt, count) for prompt in prompts]
        batches = [slice(start, start + COMPANY) for start in range(0, len(prompts), COMPANY)]
        company = [
            logits for batch in batches for logits in continue_in_company(runner, prompts[batch], alone[batch], K)
        ]
        own, others = torch.cat([one.logits for one in alone]), torch.cat(company)
        top = own.topk(2).values
        tokens = len(own)
        flips = int((own.argmax(-1) != others.argmax(-1)).sum())
        yield {
            "dtype": dtype,
            "runner": kind,
            "tokens": tokens,
            "flips": flips,
            "flips_per_1000_tokens": 1000 * flips / tokens,
            "rows_that_differ": int((own != others).any(-1).sum()) / tokens,
            "largest_difference": (own - others).abs().max().item(),
            "smallest_margin": (top[:, 0] - top[:, 1]).min().item(),
        }


def continue_alone(runner: Runner, prompt: list[int], count: int) -> Continuation:
    """Greedy decoding without speculation, nothing else in the batch."""
    holding = runner.cache.open([])
    rows = [feed(runner, [holding], [prompt], rows=1)]
    token_ids = [int(rows[0].argmax())]
    while len(token_ids) < count:
        rows.append(feed(runner, [holding], [token_ids[-1:]], rows=1))
        token_ids.append(int(rows[-1].argmax()))
    runner.cache.free(holding)
    return Continuation(token_ids=token_ids, logits=torch.cat(rows))


def continue_in_company(runner: Runner, prompts: list[list[int]], alone: list[Continuation], k: int) -> list[Tensor]:
    """The logits of the same tokens, verified in one batch as with a draft that is always right."""
    holdings = [runner.cache.open([]) for _ in prompts]
    parts = [feed(runner, holdings, prompts, rows=1).split(1)]
    count = len(alone[0].token_ids)
    for start in range(0, count - 1, k + 1):
        chunks = [one.token_ids[start : min(start + k + 1, count - 1)] for one in alone]
        parts.append(feed(runner, holdings, chunks, rows=len(chunks[0])).split(len(chunks[0])))
    for holding in holdings:
        runner.cache.free(holding)
    return [torch.cat(own) for own in zip(*parts, strict=True)]


def print_tables(costs: list[dict[str, object]], flips: list[dict[str, object]]) -> None:
    for title, rows in (("cost of a pass", costs), (f"alone at K = 0 against {COMPANY} at K = {K}", flips)):
        table = Table(title=title)
        for name in rows[0]:
            table.add_column(name.replace("_", " "), justify="right")
        for row in rows:
            table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
        Console(width=130).print(table)


if __name__ == "__main__":
    main()
