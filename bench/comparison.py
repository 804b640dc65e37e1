"""`python -m bench.comparison`: specpair compared with transformers' generate and assisted generation, on one pair.

All cases generate from the same prompts, with the same lengths, weights and types, and take turns. specpair runs in
its three processes and is measured at the client; transformers runs in its own process. Speeds exclude the first
tokens and so the pass over the prompt. Ratios compare speeds of neighbouring turns on the same prompt; their 95%
interval comes from a bootstrap over prompts and repetitions.

Assisted generation runs with each K and with the library's default (up to 20 tokens, stopping where the draft is
unsure); `best` is the fastest of these. Predictions are Theorem 3.8 of Leviathan et al. with the acceptance and the
costs of the same rounds. What a measured speedup lacks is time outside draft and verification, or a target pass that
takes longer with more rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import (
    Acceptance,
    Prediction,
    RoundMeans,
    counts_of,
    equivalent_acceptance,
    of_case,
    same_text,
    share_of_prediction,
    speeds,
    token_count,
)
from bench.interleaving import group_count, turns
from bench.measurement import Measurement
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.ratios import Estimate, ratio
from bench.report import Section, Table
from specpair.theory.points import Point, points_document
from specpair.theory.speedup import walltime_factor

SPEED_COLUMNS = {
    "case": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "to_generate|x generate": "{}",
    "to_assisted|x best assisted": "{}",
    "to_plain|x K=0": "{}",
    "predicted|predicted": "{:.2f}",
    "share_of_prediction|measured / predicted": "{}",
    "same_text|same text": "{:.0%}",
}
ROUND_COLUMNS = {
    "case": "{}",
    "drafted_per_round|K": "{:.2f}",
    "acceptance_rate|accepted": "{:.2f}",
    "first_token_acceptance|of first": "{:.2f}",
    "tokens_per_round|tokens": "{:.2f}",
    "cost_ratio|c": "{:.3f}",
    "draft_ms|draft ms": "{:.2f}",
    "verify_ms|verify ms": "{:.2f}",
    "network_ms|network and queue ms": "{:.2f}",
    "other_ms|other ms": "{:.2f}",
    "total_ms|round ms": "{:.2f}",
    "work_share|draft and verify": "{:.0%}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case in the tables."""

    case: str
    peer: str
    temperature: float
    batch_size: int
    num_speculative_tokens: int | None
    """None if the peer decides."""
    tokens_per_second: float
    """Median over prompts and repetitions."""
    to_generate: Estimate
    """Speed as a multiple of `transformers` generate."""
    to_assisted: Estimate | None
    """Speed as a multiple of the fastest assisted generation, which takes one prompt at a time."""
    to_plain: Estimate
    """Speed as a multiple of specpair at K = 0."""
    acceptance_rate: float | None
    first_token_acceptance: float | None
    acceptance_per_position: tuple[float, ...]
    tokens_per_round: float
    drafted_per_round: float
    cost_ratio: float | None
    predicted: float | None
    """Speedup by Theorem 3.8, from all turns together."""
    predicted_iid: float | None
    """The same, if every draft token were accepted as often as the first."""
    share_of_prediction: Estimate | None
    """Measured speedup over the peer's own plain decoding, as a multiple of the predicted one, turn by turn."""
    draft_ms: float
    verify_ms: float
    network_ms: float
    other_ms: float
    total_ms: float
    work_share: float
    same_text: float | None
    """At T = 0: share of the outputs that equal those of specpair at K = 0."""
    all_tokens_per_second: list[float]
    """Speed of each turn, by prompt and repetition."""


def cases_of(options: BenchOptions) -> list[Case]:
    """The compared cases; assisted generation can only run one prompt at a time."""
    return [
        case
        for batch_size in options.batch_sizes
        for temperature in options.temperatures
        for case in block_of(options, temperature, batch_size)
    ]


def block_of(options: BenchOptions, temperature: float, batch_size: int) -> list[Case]:
    def case(peer: Peer, k: int | None = None) -> Case:
        return Case(peer=peer, temperature=temperature, batch_size=batch_size, num_speculative_tokens=k)

    assisted = [case(Peer.ASSISTED, k) for k in (*options.ks, None)] if batch_size == 1 else []
    specpair = [case(Peer.SPECPAIR, k) for k in (0, *options.ks, None)]
    static = [case(Peer.GENERATE_STATIC)] if options.has_static_cache else []
    return [case(Peer.GENERATE), *static, *assisted, *specpair]


async def compare(arena: Arena) -> Section:
    """The section of the report."""
    options = arena.options
    order = turns(cases_of(options), options.prompts, options.repetitions, SEED)
    measurements = await arena.measure(order)
    rows = [row for block in blocks(options) for row in rows_of(block, measurements)]
    assert arena.transformers is not None
    return Section(
        name="comparison",
        tables=[table for block in blocks(options) for table in tables_of(options, block, rows)],
        figures={
            "transformers_process": arena.transformers.facts,
            "groups_of_prompts": {size: group_count(options.prompts, size) for size in options.batch_sizes},
            "rows": rows,
            "points": points_document(points_of(rows)),
        },
        plots={
            f"batch-{size}": points_of([row for row in rows if row.batch_size == size]) for size in options.batch_sizes
        },
        notes=notes_of(arena.transformers.facts),
    )


def notes_of(facts: dict[str, object]) -> list[str]:
    """What the figures do not show."""
    if str(facts["device"]) == "cpu":
        return []
    return ["on a GPU the passes of transformers are not timed separately: its whole rounds are under other"]


def blocks(options: BenchOptions) -> list[list[Case]]:
    """The cases that are compared with each other."""
    return [
        block_of(options, temperature, batch_size)
        for batch_size in options.batch_sizes
        for temperature in options.temperatures
    ]


def tables_of(options: BenchOptions, block: list[Case], rows: Sequence[Row]) -> list[Table]:
    temperature, batch_size = block[0].block
    own = [row for row in rows if (row.temperature, row.batch_size) == (temperature, batch_size)]
    title = f"T = {temperature:g}, batch {batch_size}, {options.label}"
    return [
        Table(title=f"{title}: speed", columns=SPEED_COLUMNS, rows=own),
        Table(title=f"{title}: parts of a round", columns=ROUND_COLUMNS, rows=own),
    ]


def rows_of(block: list[Case], measurements: Sequence[Measurement]) -> list[Row]:
    best = best_assisted(block, measurements)
    return [row_of(case, best, measurements) for case in block]


def best_assisted(block: list[Case], measurements: Sequence[Measurement]) -> Case | None:
    """The fastest assisted generation, by the median over its turns; None if the block has none."""
    assisted = [case for case in block if case.peer is Peer.ASSISTED]
    return max(assisted, key=lambda case: median_speed(case, measurements), default=None)


def median_speed(case: Case, measurements: Sequence[Measurement]) -> float:
    return median(speeds(of_case(measurements, case)).values())


def row_of(case: Case, best: Case | None, measurements: Sequence[Measurement]) -> Row:
    outputs = of_case(measurements, case)
    generate, plain = (of_case(measurements, base) for base in (case.generate(), case.plain()))
    counts, tokens = counts_of(outputs), token_count(outputs)
    acceptance, prediction = Acceptance.of(counts, tokens), Prediction.of(counts, tokens)
    base = plain if case.peer is Peer.SPECPAIR else generate
    k = case.num_speculative_tokens
    return Row(
        case=case.name,
        peer=case.peer,
        temperature=case.temperature,
        batch_size=case.batch_size,
        num_speculative_tokens=k,
        tokens_per_second=median_speed(case, measurements),
        to_generate=ratio(speeds(outputs), speeds(generate)),
        to_assisted=ratio(speeds(outputs), speeds(of_case(measurements, best))) if best else None,
        to_plain=ratio(speeds(outputs), speeds(plain)),
        acceptance_rate=acceptance.rate,
        first_token_acceptance=acceptance.first,
        acceptance_per_position=acceptance.per_position,
        tokens_per_round=acceptance.tokens_per_round,
        drafted_per_round=acceptance.drafted_per_round,
        cost_ratio=prediction and prediction.cost_ratio,
        predicted=prediction and prediction.speedup,
        predicted_iid=walltime_factor(acceptance.first or 0.0, k, prediction.cost_ratio) if prediction and k else None,
        share_of_prediction=share_of_prediction(outputs, base),
        **vars(RoundMeans.of(counts, sum(output.output_seconds for output in outputs.values()))),
        same_text=same_text(outputs, plain) if case.temperature == 0 else None,
        all_tokens_per_second=[round(speed, 2) for _, speed in sorted(speeds(outputs).items())],
    )


def points_of(rows: Sequence[Row]) -> list[Point]:
    """Fixed K as points over the curves of theory; their acceptance gives the measured tokens per round."""
    return [
        Point(
            label=f"{row.peer}, T = {row.temperature:g}, batch {row.batch_size}",
            num_speculative_tokens=row.num_speculative_tokens,
            acceptance=equivalent_acceptance(row.tokens_per_round, row.num_speculative_tokens),
            cost_ratio=row.cost_ratio,
            predicted=row.predicted,
            measured=(row.to_plain if row.peer == Peer.SPECPAIR else row.to_generate).value,
        )
        for row in rows
        if row.num_speculative_tokens and row.cost_ratio is not None and row.predicted is not None
    ]


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, compare, with_transformers=True)]


if __name__ == "__main__":
    run_alone("comparison", __doc__, measure_alone)
