"""The pair through its three processes: K = 0, a fixed K and adaptive K, in turns. The target is the bundled one,
expanded to the shape, so acceptance is that of the bundled pair."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from operator import add
from statistics import median
from typing import Any

from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.expansion import expansion_of
from bench.gpu.setting import BATCHES, PAIRS, Setting
from bench.interleaving import turns
from bench.measurement import Measurement
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.ratios import ratio
from bench.report import Table
from specpair.named_models import BUNDLED, resolve_model

TEMPERATURES = (0.0, 1.0)
REPETITIONS = 2
FIXED = 4
"""The fixed K: it tells what a round with proposals takes, and whether adaptive K is right where it proposes none."""


def measure_pair(setting: Setting) -> list[dict[str, Any]]:
    """Tokens per second without and with speculation, for each temperature and batch."""
    options = options_of(setting)

    async def work(arena: Arena) -> list[Measurement]:
        return await arena.measure(turns(list(cases()), options.prompts, options.repetitions, SEED))

    return list(rows_of(asyncio.run(in_arena(options, Progress(), work))))


def options_of(setting: Setting) -> BenchOptions:
    expanded = PAIRS[setting.shape]
    is_trial = not setting.device.startswith("cuda")
    return BenchOptions(
        target=str(expansion_of(expanded, setting.dtype).folder) if expanded else resolve_model(BUNDLED, "target"),
        draft=resolve_model(BUNDLED, "draft"),
        dtype=setting.dtype,  # type: ignore[arg-type]
        device=setting.device,
        prompts=setting.prompts,
        prompt_tokens=min(setting.context, 128),
        max_tokens=setting.tokens,
        repetitions=1 if is_trial else REPETITIONS,
        has_transformers=False,
        service_flags=flags_of(setting, is_trial),
    )


def flags_of(setting: Setting, is_trial: bool) -> dict[str, object]:
    """On a GPU the defaults, with the memory divided as `specpair up` does; a trial captures on the CPU."""
    if is_trial:
        return {"--runner": "captured", "--cache": "paged", "--num-blocks": 256, "--max-model-len": 256}
    return {"--gpu-memory-utilization": 0.4, "--max-model-len": setting.context + setting.tokens + 32}


def cases() -> Iterator[Case]:
    for batch in BATCHES:
        for temperature in TEMPERATURES:
            for count in (0, FIXED, None):
                yield Case(peer=Peer.SPECPAIR, temperature=temperature, batch_size=batch, num_speculative_tokens=count)


def rows_of(measurements: list[Measurement]) -> Iterator[dict[str, Any]]:
    """One row for each temperature and batch. Ratios are of neighbouring turns; what a round takes is of the fixed
    K."""
    speeds: dict[tuple[float, int, int | None], dict[tuple[int, int], float]] = defaultdict(dict)
    outputs: dict[tuple[float, int, int | None], list[Any]] = defaultdict(list)
    for found in measurements:
        case = found.turn.case
        key = (case.temperature, case.batch_size, case.num_speculative_tokens)
        speeds[key][found.turn.prompt, found.turn.repetition] = found.output.tokens_per_second
        outputs[key].append(found.output.counts)
    for temperature, batch in dict.fromkeys(key[:2] for key in speeds):
        plain, fixed, adaptive = (speeds[temperature, batch, count] for count in (0, FIXED, None))
        counts = reduce(add, outputs[temperature, batch, FIXED])
        yield {
            "temperature": temperature,
            "batch": batch,
            "plain": median(plain.values()),
            "fixed": median(fixed.values()),
            "adaptive": median(adaptive.values()),
            "fixed_ratio": ratio(fixed, plain),
            "ratio": ratio(adaptive, plain),
            "acceptance": counts.accepted / counts.drafted if counts.drafted else None,
            "tokens_per_round": counts.accepted / counts.rounds + 1 if counts.rounds else None,
            "draft_ms": 1e3 * counts.draft_seconds / counts.rounds if counts.rounds else None,
            "verify_ms": 1e3 * counts.verify_seconds / counts.rounds if counts.rounds else None,
        }


def table(rows: list[dict[str, Any]]) -> Table:
    return Table(
        title="tokens per second of the pair, through its three processes",
        columns={
            "temperature|T": "{:g}",
            "batch": "{}",
            "plain|K = 0": "{:.0f}",
            f"fixed|K = {FIXED}": "{:.0f}",
            "adaptive": "{:.0f}",
            f"fixed_ratio|K = {FIXED} / K = 0": "{}",
            "ratio|adaptive / K = 0": "{}",
            f"acceptance|accepted, K = {FIXED}": "{:.2f}",
            "tokens_per_round|tokens a round": "{:.2f}",
            "draft_ms|draft ms": "{:.2f}",
            "verify_ms|verify ms": "{:.2f}",
        },
        rows=rows,
    )
