"""`python -m bench.forwards`: single forward passes compared with their floor and with those of transformers.

The floor is the time to read the weights once: a plain sum over as many bytes, with as many threads, in the same run.
It is measured twice: for the weights in the type of the computation, and for those of the checkpoint, often half as
many bytes. Our passes run the services' model runner in this process, for one sequence, with the services' number of
threads. The passes of transformers run the same model with its own attention and default cache. All are timed in bursts
that take turns.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

from bench.alone import run_alone
from bench.bursts import Subject, timed_in_turn
from bench.options import BenchOptions, Role
from bench.passes import TimedRunner, synchronize
from bench.progress import Progress
from bench.prompts import long_prompt
from bench.ratios import Estimate, Pairs, ratio
from bench.report import Section, Table
from specpair.engine_config import EngineConfig
from specpair.models.device_defaults import choose_device, choose_dtype
from specpair.models.find_checkpoint import find_checkpoint

ROWS: dict[Role, tuple[int, ...]] = {"target": (1, 2, 3, 5, 8, 16), "draft": (1,)}
CONTEXTS = (128, 1024)
REPETITIONS = 15
QUICK_REPETITIONS = 2
COLUMNS = {
    "model": "{}",
    "rows": "{}",
    "context": "{}",
    "ms": "{:.3f}",
    "floor_ms|floor ms": "{:.3f}",
    "to_floor|x floor": "{}",
    "to_stored_floor|x floor as stored": "{}",
    "transformers_ms|transformers ms": "{:.3f}",
    "to_transformers|x transformers' time": "{}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of pass. Times are medians."""

    model: str
    """target or draft."""
    rows: int
    """Tokens fed; all their logits are computed."""
    context: int
    """Tokens in the cache before them."""
    ms: float
    floor_ms: float
    """Time to read the weights in the type of the computation."""
    to_floor: Estimate
    stored_floor_ms: float
    """Time to read the weights in the type of the checkpoint."""
    to_stored_floor: Estimate
    transformers_ms: float
    to_transformers: Estimate
    """Time as a multiple of that of transformers."""


class PlainModel:
    """A model as transformers runs it, eagerly, with its default cache."""

    def __init__(self, name: str, options: BenchOptions):
        self.device = choose_device(options.device)
        settings = find_checkpoint(name).settings()
        dtype = choose_dtype(EngineConfig(model=name, dtype=options.dtype), settings, self.device)
        self._stored_dtype: torch.dtype = getattr(settings, "dtype", None) or torch.float32
        logging.disable_progress_bar()
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, use_safetensors=True)
        self._model = model.to(self.device).eval()
        self._cache = DynamicCache(config=model.config)

    @property
    def read_bytes(self) -> int:
        """Bytes of the weights that every pass reads: all except input embeddings that no other layer uses."""
        embeddings = self._model.get_input_embeddings().weight
        is_shared = embeddings is self._model.get_output_embeddings().weight
        sizes = (p.numel() * p.element_size() for p in self._model.parameters() if p is not embeddings or is_shared)
        return sum(sizes)

    @property
    def stored_bytes(self) -> int:
        """The same weights in the checkpoint's type."""
        return self.read_bytes * self._stored_dtype.itemsize // self._model.dtype.itemsize

    @torch.inference_mode()
    def hold(self, token_ids: list[int]) -> None:
        """Fills the cache with only these tokens."""
        self._cache = DynamicCache(config=self._model.config)
        self._feed(token_ids)

    @torch.inference_mode()
    def pass_seconds(self, chunk: list[int]) -> float:
        """Seconds of one pass over the chunk after the held tokens; the cache is restored afterwards."""
        started = time.perf_counter()
        self._feed(chunk)
        synchronize()
        seconds = time.perf_counter() - started
        self._cache.crop(-len(chunk))
        return seconds

    def _feed(self, token_ids: list[int]) -> None:
        ids = torch.tensor([token_ids], device=self.device)
        self._model(input_ids=ids, past_key_values=self._cache, use_cache=True)


def measure_forwards(options: BenchOptions, progress: Progress) -> Section:
    """The section of the report."""
    repetitions = QUICK_REPETITIONS if options.is_quick else REPETITIONS
    contexts = CONTEXTS[:1] if options.is_quick else CONTEXTS
    rows: list[Row] = []
    floors: dict[str, Any] = {}
    for role in ("target", "draft"):
        name = options.target if role == "target" else options.draft
        plain, runner = PlainModel(name, options), TimedRunner.load(name, options)
        floors[role] = {"bytes": plain.read_bytes, "stored_bytes": plain.stored_bytes, "threads": runner.threads}
        for context in contexts:
            token_ids = long_prompt(options.target, context + max(ROWS[role]))
            rows += measure_context(role, token_ids, context, plain, runner, repetitions, progress)
        fastest = min(row.floor_ms for row in rows if row.model == role)
        floors[role]["bandwidth_gb_per_s"] = plain.read_bytes / fastest / 1e6
    table = Table(title=f"one forward pass, {options.label}; times are medians", columns=COLUMNS, rows=rows)
    figures = {"repetitions": repetitions, "floors": floors, "rows": rows}
    return Section(name="forwards", tables=[table], figures=figures)


def measure_context(
    role: Role,
    token_ids: list[int],
    context: int,
    plain: PlainModel,
    runner: TimedRunner,
    repetitions: int,
    progress: Progress,
) -> list[Row]:
    """All row counts at one context: the floor, our pass and that of transformers take turns."""
    held, following = token_ids[:context], token_ids[context:]
    plain.hold(held)
    with ExitStack() as stack:
        holdings = stack.enter_context(runner.sequences(held, 1))
        subjects: dict[str, Subject] = {
            "floor": floor(plain.read_bytes, plain.device),
            "stored floor": floor(plain.stored_bytes, plain.device),
        }
        for count in ROWS[role]:
            subjects[f"ours {count}"] = bound(lambda chunk: runner.pass_seconds(holdings, chunk), following[:count])
            subjects[f"transformers {count}"] = bound(plain.pass_seconds, following[:count])
        advance = stack.enter_context(progress.over(repetitions * len(subjects), f"bursts, {role}, context {context}"))
        seconds = timed_in_turn(subjects, repetitions, advance)
    return [row_of(role, count, context, seconds) for count in ROWS[role]]


def bound(timed: Callable[[list[int]], float], chunk: list[int]) -> Subject:
    return lambda: timed(chunk)


def floor(byte_count: int, device: torch.device) -> Subject:
    """Reads this many bytes once, on the model's device."""
    numbers = torch.ones(byte_count // 4, dtype=torch.float32, device=device)

    def read() -> float:
        started = time.perf_counter()
        numbers.sum()
        synchronize()
        return time.perf_counter() - started

    return read


def row_of(role: Role, count: int, context: int, seconds: dict[str, dict[tuple[int, int], float]]) -> Row:
    own, transformers = seconds[f"ours {count}"], seconds[f"transformers {count}"]
    return Row(
        model=role,
        rows=count,
        context=context,
        ms=median_ms(own),
        floor_ms=median_ms(seconds["floor"]),
        to_floor=ratio(own, seconds["floor"]),
        stored_floor_ms=median_ms(seconds["stored floor"]),
        to_stored_floor=ratio(own, seconds["stored floor"]),
        transformers_ms=median_ms(transformers),
        to_transformers=ratio(own, transformers),
    )


def median_ms(seconds: Pairs) -> float:
    return 1000 * median(seconds.values())


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [measure_forwards(options, progress)]


if __name__ == "__main__":
    run_alone("forwards", __doc__, measure_alone)
