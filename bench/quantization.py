"""`python -m bench.quantization`: what weights of 8 and 4 bits save, and how far they are from the checkpoint.

Forward passes of the target with each form of its weights take turns in this process, in bursts; so all have the same
machine and the same number of threads. Memory is that of a process of its own that has loaded the model and made one
pass. The divergence is measured on held-out prompts, in addition to the short text that a service measures at load.
"""

import ctypes
import gc
import multiprocessing
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers.utils import logging

from bench.alone import run_alone
from bench.bursts import Subject, timed_in_turn
from bench.options import BenchOptions
from bench.passes import TimedRunner
from bench.progress import Progress
from bench.prompts import long_prompt
from bench.ratios import Estimate, ratio
from bench.report import Section, Table
from bench.threads import wanted_threads
from specpair.engine_config import EngineConfig
from specpair.models.divergence import divergence_of, served_logits
from specpair.models.load_runner import load_runner

FORMATS = ("none", "int8", "int4")
ROWS = (1, 4, 5, 8, 16)
CONTEXT = 128
HELD_OUT = 1024
"""Tokens on which the divergence is measured."""
REPETITIONS = 15
QUICK_REPETITIONS = 2
PASSES = {
    "quantization": "{}",
    "rows": "{}",
    "ms": "{:.2f}",
    "to_sixteen|x time of 16 bits": "{}",
    "to_one|x its own time of 1 row": "{:.2f}",
}
MODELS = {
    "quantization": "{}",
    "mean_kl|KL in nats": "{:.4f}",
    "greedy_agreement|same greedy token": "{:.3f}",
    "megabytes|MB": "{:.0f}",
    "load_seconds|s to load": "{:.1f}",
}


@dataclass(frozen=True, kw_only=True)
class PassRow:
    """One kind of pass. Times are medians."""

    quantization: str
    rows: int
    ms: float
    to_sixteen: Estimate
    """Time as a multiple of that with weights as in the checkpoint."""
    to_one: float


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One form of the weights."""

    quantization: str
    mean_kl: float
    """From the runner with weights as in the checkpoint."""
    greedy_agreement: float
    megabytes: float
    """Resident memory of the process, its code included, with a cache of one sequence."""
    load_seconds: float
    runner: str


def measure_quantization(options: BenchOptions, progress: Progress) -> Section:
    """The section of the report."""
    costs = {name: cost_alone(options, name) for name in FORMATS}
    logging.disable_progress_bar()
    runners = {name: timed_runner(options, name) for name in FORMATS}
    token_ids = long_prompt(options.target, HELD_OUT)
    models = [model_row(name, runners, token_ids, *costs[name]) for name in FORMATS]
    repetitions = QUICK_REPETITIONS if options.is_quick else REPETITIONS
    rows = measure_passes(runners, token_ids, repetitions, progress)
    tables = [
        Table(title=f"one forward pass, {options.label}; times are medians", columns=PASSES, rows=rows),
        Table(title=f"{options.label}: {HELD_OUT} held-out tokens, and one process", columns=MODELS, rows=models),
    ]
    figures = {
        "repetitions": repetitions, "context": CONTEXT, "threads": runners["none"].threads, "passes": rows,
        "models": models,
    }  # fmt: skip
    return Section(name="quantization", tables=tables, figures=figures)


def configuration(options: BenchOptions, quantization: Any) -> EngineConfig:
    return EngineConfig(
        model=options.target, dtype=options.dtype, device=options.device, threads=wanted_threads(), max_num_seqs=1,
        quantization=quantization,
    )  # fmt: skip


def timed_runner(options: BenchOptions, quantization: str) -> TimedRunner:
    _, runner = load_runner(configuration(options, quantization))
    return TimedRunner(runner=runner, threads=torch.get_num_threads())


def cost_alone(options: BenchOptions, quantization: str) -> tuple[float, float]:
    """Megabytes and seconds to load, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(load_and_weigh, (configuration(options, quantization),))


def load_and_weigh(config: EngineConfig) -> tuple[float, float]:
    """Runs in the child."""
    logging.disable_progress_bar()
    started = time.perf_counter()
    _, runner = load_runner(config)
    seconds = time.perf_counter() - started
    served_logits(runner, [0, 1, 2, 3])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return kilobytes / 1000, seconds


def model_row(
    name: str, runners: dict[str, TimedRunner], token_ids: list[int], megabytes: float, load_seconds: float
) -> ModelRow:
    original, served = (served_logits(runners[which].runner, token_ids) for which in ("none", name))
    divergence = divergence_of(original, served)
    return ModelRow(
        quantization=name,
        mean_kl=divergence.mean_kl,
        greedy_agreement=divergence.greedy_agreement,
        megabytes=megabytes,
        load_seconds=load_seconds,
        runner=runners[name].runner.description,
    )


def measure_passes(
    runners: dict[str, TimedRunner], token_ids: list[int], repetitions: int, progress: Progress
) -> list[PassRow]:
    """All forms and row counts take turns."""
    held, following = token_ids[:CONTEXT], token_ids[CONTEXT:]
    with ExitStack() as stack:
        subjects: dict[str, Subject] = {}
        for name, runner in runners.items():
            holdings = stack.enter_context(runner.sequences(held, 1))
            for count in ROWS:
                subjects[f"{name} {count}"] = lambda runner=runner, holdings=holdings, count=count: runner.pass_seconds(
                    holdings, following[:count]
                )
        advance = stack.enter_context(progress.over(repetitions * len(subjects), "bursts"))
        seconds = timed_in_turn(subjects, repetitions, advance)
    ms = {name: 1000 * median(timings.values()) for name, timings in seconds.items()}
    return [
        PassRow(
            quantization=name,
            rows=count,
            ms=ms[f"{name} {count}"],
            to_sixteen=ratio(seconds[f"{name} {count}"], seconds[f"none {count}"]),
            to_one=ms[f"{name} {count}"] / ms[f"{name} 1"],
        )
        for count in ROWS
        for name in runners
    ]


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [measure_quantization(options, progress)]


if __name__ == "__main__":
    run_alone("quantization", __doc__, measure_alone)
