"""`python -m bench.streams`: tokens per second of many streams together, compared with one.

The three services get one request or many at the same time, without speculation and with adaptive K. All take turns on
the same prompts.
"""

import random
from dataclasses import dataclass
from statistics import median

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import Acceptance, RoundMeans, counts_of, of_case, speeds, token_count
from bench.measurement import Turn
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.ratios import Estimate, ratio
from bench.report import Section, Table

STREAMS = 16
QUICK_STREAMS = 4
COLUMNS = {
    "case": "{}",
    "temperature|T": "{:g}",
    "streams": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "to_one|x one stream": "{}",
    "tokens_per_round|tokens a round": "{:.2f}",
    "draft_ms|draft ms": "{:.2f}",
    "verify_ms|verify ms": "{:.2f}",
    "network_ms|network and queue ms": "{:.2f}",
    "other_ms|other ms": "{:.2f}",
    "total_ms|round ms": "{:.2f}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A number of streams of one kind."""

    case: str
    temperature: float
    streams: int
    tokens_per_second: float
    """Speed of all streams together: the median over the turns."""
    to_one: Estimate
    tokens_per_round: float
    draft_ms: float
    verify_ms: float
    network_ms: float
    other_ms: float
    total_ms: float
    work_share: float


def kinds(options: BenchOptions) -> list[Case]:
    """One stream of each kind: K = 0, and adaptive."""
    return [
        Case(peer=Peer.SPECPAIR, temperature=temperature, num_speculative_tokens=k)
        for temperature in options.temperatures
        for k in (0, None)
    ]


async def measure_streams(arena: Arena) -> Section:
    """The section of the report."""
    options = arena.options
    many = QUICK_STREAMS if options.is_quick else STREAMS
    groups = max(1, min(options.prompts, len(arena.prompts) // many))
    measurements = await arena.measure(order_of(kinds(options), many, groups, options.repetitions))
    rows: list[Row] = []
    for kind in kinds(options):
        one = of_case(measurements, kind)
        for case in (kind, kind.batched(many)):
            outputs = of_case(measurements, case)
            counts = counts_of(outputs)
            rows.append(
                Row(
                    case=case.name,
                    temperature=case.temperature,
                    streams=case.batch_size,
                    tokens_per_second=median(speeds(outputs).values()),
                    to_one=ratio(speeds(outputs), speeds(one)),
                    tokens_per_round=Acceptance.of(counts, token_count(outputs)).tokens_per_round,
                    **vars(RoundMeans.of(counts, sum(output.output_seconds for output in outputs.values()))),
                )
            )
    table = Table(title=f"streams together, {options.label}", columns=COLUMNS, rows=rows)
    return Section(name="streams", tables=[table], figures={"rows": rows})


def order_of(cases: list[Case], many: int, groups: int, repetitions: int) -> list[Turn]:
    """For each group of prompts, one stream and many streams take turns; the order is shuffled each time."""
    shuffler = random.Random(SEED)
    order: list[Turn] = []
    for repetition in range(repetitions):
        for prompt in range(groups):
            pairs = [case.batched(size) for case in cases for size in (1, many)]
            shuffler.shuffle(pairs)
            order += [Turn(case=case, prompt=prompt, repetition=repetition) for case in pairs]
    return order


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_streams)]


if __name__ == "__main__":
    run_alone("streams", __doc__, measure_alone)
