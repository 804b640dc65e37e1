"""The figures of a cell of `bench.apart`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.apart.arithmetic import Best, co_located_bound, profile_of, synchronous_bound
from bench.apart.cells import Cell
from bench.case import Case
from bench.figures import Acceptance, RoundMeans, counts_of, equivalent_acceptance, of_case, token_count
from bench.measurement import Counts, Measurement, Output
from bench.ratios import Estimate, ratio
from specpair.options import WorkAhead

COLUMNS = {
    "draft": "{:g}",
    "temperature|T": "{:g}",
    "rule": "{}",
    "batch_size|batch": "{}",
    "step_ms|step": "{:g}",
    "round_trip_ms|RTT": "{:g}",
    "acceptance|alpha": "{:.2f}",
    "way": "{}",
    "num_speculative_tokens|K": "{}",
    "tokens_per_second|tok/s": "{:.0f}",
    "tokens_per_round|tok/round": "{:.2f}",
    "round_ms|round": "{:.1f}",
    "overhead_ms|over": "{:.1f}",
    "hit_rate|hits": "{:.2f}",
    "ratio_to_synchronous|x synchronous": "{}",
    "bound_tokens_per_second|bound": "{:.0f}",
    "to_bound|x bound": "{:.2f}",
    "co_located_tokens_per_second|one device": "{:.0f}",
}
NAMES = {WorkAhead.OFF: "synchronous", WorkAhead.AUTO: "ahead, auto", WorkAhead.ON: "ahead"}
HEADINGS = (
    "step, RTT (round trip), round, over: milliseconds; over is what a synchronous round takes beyond verify + K step +"
    " round trip; alpha: the acceptance, equal at all positions, that gives the tokens per round; bound: Theorem 3.8"
    " with the round trip, tokens/s; one device: the same without a round trip, as llama.cpp drafts"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to generate in one cell, at its best K."""

    draft: float
    """The acceptance that the draft was made for."""
    temperature: float
    rule: str
    batch_size: int
    verify_ms: float
    step_ms: float
    round_trip_ms: float
    acceptance: float
    """The acceptance, equal at all positions, that gives the measured tokens per round."""
    way: str
    num_speculative_tokens: int
    tried: dict[int, float]
    """Tokens per second at each K that was measured."""
    tokens_per_second: float
    """Of all outputs of a turn together, as long as all of them run: the mean over all turns."""
    tokens_per_round: float
    round_ms: float
    """From message to message: the median over the turns of their medians."""
    overhead_ms: float | None
    """A synchronous round minus what it takes by calculation."""
    hit_rate: float | None
    """Share of the rounds with work ahead whose proposal was there, or being made, when it was needed; None if the
    draft never worked ahead."""
    ratio_to_synchronous: Estimate | None
    """In the same turns, against the best synchronous K; None for that itself."""
    parts: RoundMeans
    """Where the time of a round goes, by the services' own clocks; the passes include their pace."""
    bound_tokens_per_second: float
    """Theorem 3.8 with the round trip: no synchronous K exceeds it."""
    bound_k: int
    to_bound: float
    co_located_tokens_per_second: float
    """The same on one device without a round trip, as llama.cpp drafts."""
    co_located_k: int


Ways = Mapping[WorkAhead, Sequence[Case]]
"""The cases of each way to generate, which differ in K. OFF is among them."""


def rows_of(cell: Cell, ways: Ways, measurements: Sequence[Measurement]) -> list[Row]:
    """A row for each way."""
    synchronous = ways[WorkAhead.OFF]
    base = speeds(of_case(measurements, best_of(synchronous, measurements)))
    bound, beside = bounds_of(cell, synchronous, measurements)
    rows: list[Row] = []
    for way, cases in ways.items():
        best = best_of(cases, measurements)
        outputs = of_case(measurements, best)
        k = best.num_speculative_tokens
        assert k is not None
        counts = counts_of(outputs)
        tokens_per_round = Acceptance.of(counts, token_count(outputs)).tokens_per_round
        speed, round_ms = mean_speed(outputs), median_round_ms(outputs)
        rows.append(
            Row(
                draft=cell.pair.acceptance,
                temperature=cell.pair.temperature,
                rule=cell.rule.value,
                batch_size=cell.batch_size,
                **vars(cell.devices),
                acceptance=equivalent_acceptance(tokens_per_round, k),
                way=NAMES[way],
                num_speculative_tokens=k,
                tried=tried_of(cases, measurements),
                tokens_per_second=speed,
                tokens_per_round=tokens_per_round,
                round_ms=round_ms,
                overhead_ms=round_ms - cell.devices.round_ms(k) if way is WorkAhead.OFF else None,
                hit_rate=hit_rate(counts),
                ratio_to_synchronous=None if way is WorkAhead.OFF else ratio(speeds(outputs), base),
                parts=RoundMeans.of(counts, sum(output.output_seconds for output in outputs.values())),
                bound_tokens_per_second=bound.tokens_per_second,
                bound_k=bound.num_speculative_tokens,
                to_bound=speed / bound.tokens_per_second,
                co_located_tokens_per_second=beside.tokens_per_second,
                co_located_k=beside.num_speculative_tokens,
            )
        )
    return rows


def hit_rate(counts: Counts) -> float | None:
    hits, others = counts.ahead_hits + counts.ahead_late, counts.ahead_misses + counts.ahead_plain
    return hits / (hits + others) if hits + others else None


def best_of(cases: Sequence[Case], measurements: Sequence[Measurement]) -> Case:
    """The fastest of the cases."""
    return max(cases, key=lambda case: mean_speed(of_case(measurements, case)))


def tried_of(cases: Sequence[Case], measurements: Sequence[Measurement]) -> dict[int, float]:
    return {case.num_speculative_tokens or 0: mean_speed(of_case(measurements, case)) for case in cases}


def bounds_of(cell: Cell, synchronous: Sequence[Case], measurements: Sequence[Measurement]) -> tuple[Best, Best]:
    """Apart and on one device, for the acceptance of these very outputs, as the longest proposals show it."""
    longest = max(synchronous, key=lambda case: case.num_speculative_tokens or 0)
    profile = measured_profile(of_case(measurements, longest))
    return (
        synchronous_bound(profile, cell.devices, cell.batch_size),
        co_located_bound(profile, cell.devices, cell.batch_size),
    )


def measured_profile(outputs: Mapping[tuple[int, int], Output]) -> list[float]:
    return profile_of(Acceptance.of(counts_of(outputs), token_count(outputs)).per_position)


def median_round_ms(outputs: Mapping[tuple[int, int], Output]) -> float:
    return median(1000 * median(output.round_seconds) for output in outputs.values())


def speeds(outputs: Mapping[tuple[int, int], Output]) -> dict[tuple[int, int], float]:
    """Tokens per second of the outputs of a turn, each over its own time, added up.

    At the end of a turn some outputs have ended and others have not. That time would count against short turns.
    """
    return {key: len(one.token_ids) * one.tokens / one.output_seconds for key, one in outputs.items()}


def mean_speed(outputs: Mapping[tuple[int, int], Output]) -> float:
    """The same over all turns, as the bound is: tokens per round over the time of a round."""
    size = len(next(iter(outputs.values())).token_ids)
    return size * token_count(outputs) / sum(output.output_seconds for output in outputs.values())
