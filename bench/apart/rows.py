"""The figures of a cell of `bench.apart`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.apart.arithmetic import Best, co_located_bound, profile_of, synchronous_bound
from bench.apart.cells import Cell
from bench.case import Case
from bench.figures import Acceptance, counts_of, equivalent_acceptance, of_case, speeds, token_count
from bench.measurement import Measurement, Output
from bench.ratios import Estimate, ratio

COLUMNS = {
    "draft": "{:g}",
    "temperature|T": "{:g}",
    "rule": "{}",
    "batch_size|batch": "{}",
    "step_ms|step ms": "{:g}",
    "round_trip_ms|round trip ms": "{:g}",
    "acceptance|accepted": "{:.2f}",
    "way": "{}",
    "num_speculative_tokens|best K": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "tokens_per_round|tokens a round": "{:.2f}",
    "round_ms|round ms": "{:.2f}",
    "overhead_ms|of it overhead": "{:.2f}",
    "ratio_to_synchronous|x synchronous": "{}",
    "bound_tokens_per_second|bound tokens/s": "{:.1f}",
    "to_bound|x bound": "{:.2f}",
    "co_located_tokens_per_second|one device tokens/s": "{:.1f}",
}


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
    """Of all outputs together: the median over the turns."""
    tokens_per_round: float
    round_ms: float
    """From message to message: the median over the turns of their medians."""
    overhead_ms: float | None
    """A synchronous round minus what it takes by calculation."""
    ratio_to_synchronous: Estimate
    """In the same turns, against the best synchronous K."""
    bound_tokens_per_second: float
    """Theorem 3.8 with the round trip: no synchronous K exceeds it."""
    bound_k: int
    to_bound: float
    co_located_tokens_per_second: float
    """The same on one device without a round trip, as llama.cpp drafts."""
    co_located_k: int


Ways = Mapping[str, Sequence[Case]]
"""The cases of each way to generate, which differ in K. The first is the synchronous way."""
SYNCHRONOUS = "synchronous"


def rows_of(cell: Cell, ways: Ways, measurements: Sequence[Measurement]) -> list[Row]:
    """A row for each way."""
    synchronous = ways[SYNCHRONOUS]
    base = speeds(of_case(measurements, best_of(synchronous, measurements)))
    bound, beside = bounds_of(cell, synchronous, measurements)
    rows: list[Row] = []
    for way, cases in ways.items():
        best = best_of(cases, measurements)
        outputs = of_case(measurements, best)
        k = best.num_speculative_tokens
        assert k is not None
        tokens_per_round = Acceptance.of(counts_of(outputs), token_count(outputs)).tokens_per_round
        speed, round_ms = median(speeds(outputs).values()), median_round_ms(outputs)
        rows.append(
            Row(
                draft=cell.pair.acceptance,
                temperature=cell.pair.temperature,
                rule=cell.rule.value,
                batch_size=cell.batch_size,
                **vars(cell.devices),
                acceptance=equivalent_acceptance(tokens_per_round, k),
                way=way,
                num_speculative_tokens=k,
                tried=tried_of(cases, measurements),
                tokens_per_second=speed,
                tokens_per_round=tokens_per_round,
                round_ms=round_ms,
                overhead_ms=round_ms - cell.devices.round_ms(k) if way == SYNCHRONOUS else None,
                ratio_to_synchronous=ratio(speeds(outputs), base),
                bound_tokens_per_second=bound.tokens_per_second,
                bound_k=bound.num_speculative_tokens,
                to_bound=speed / bound.tokens_per_second,
                co_located_tokens_per_second=beside.tokens_per_second,
                co_located_k=beside.num_speculative_tokens,
            )
        )
    return rows


def best_of(cases: Sequence[Case], measurements: Sequence[Measurement]) -> Case:
    """The fastest of the cases by the median over its turns."""
    return max(cases, key=lambda case: median(speeds(of_case(measurements, case)).values()))


def tried_of(cases: Sequence[Case], measurements: Sequence[Measurement]) -> dict[int, float]:
    found = {case.num_speculative_tokens: speeds(of_case(measurements, case)) for case in cases}
    return {k: median(by_turn.values()) for k, by_turn in found.items() if k is not None}


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
