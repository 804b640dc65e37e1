"""The rows of a comparison: the speed of each case as multiples of the others, and where its time goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.case import Case, Peer, Weights
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
from bench.measurement import Measurement
from bench.ratios import Estimate, ratio
from specpair.theory.points import Point
from specpair.theory.speedup import walltime_factor


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case in the tables."""

    case: str
    peer: str
    temperature: float
    batch_size: int
    num_speculative_tokens: int | None
    """None if the peer decides."""
    weights: Weights | None
    """llama.cpp: what it computes with."""
    tokens_per_second: float
    """Median over prompts and repetitions."""
    to_generate: Estimate | None
    """Speed as a multiple of `transformers` generate."""
    to_assisted: Estimate | None
    """Speed as a multiple of the fastest assisted generation, which takes one prompt at a time."""
    to_plain: Estimate
    """Speed as a multiple of specpair at K = 0."""
    to_fixed: Estimate | None
    """specpair: speed as a multiple of its fastest fixed K, 0 included."""
    to_llama: dict[Weights, Estimate]
    """Speed as a multiple of the fastest llama.cpp, with and without a draft, for each of its kinds of weights."""
    to_vllm: Estimate | None
    """Speed as a multiple of the fastest vLLM, with and without a draft."""
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


@dataclass(frozen=True, kw_only=True)
class Bases:
    """The cases of a block that the others are compared with; None where the block has none."""

    generate: Case | None
    assisted: Case | None
    plain: Case
    fixed: Case
    llama: dict[Weights, Case]
    vllm: Case | None


def rows_of(block: Sequence[Case], measurements: Sequence[Measurement]) -> list[Row]:
    bases = bases_of(block, measurements)
    return [row_of(case, bases, measurements) for case in block]


def bases_of(block: Sequence[Case], measurements: Sequence[Measurement]) -> Bases:
    """The fastest of each kind, by the median over its turns."""

    def fastest(is_one: Callable[[Case], bool]) -> Case | None:
        return max(filter(is_one, block), key=lambda case: median_speed(case, measurements), default=None)

    plain = block[0].plain()
    own = fastest(lambda case: case.peer is Peer.SPECPAIR and case.num_speculative_tokens is not None)
    kinds = dict.fromkeys(case.weights for case in block if case.weights is not None)
    llama = {weights: fastest(lambda case, weights=weights: case.weights is weights) for weights in kinds}
    return Bases(
        generate=fastest(lambda case: case.peer is Peer.GENERATE),
        assisted=fastest(lambda case: case.peer is Peer.ASSISTED),
        plain=plain,
        fixed=own or plain,
        llama={weights: case for weights, case in llama.items() if case is not None},
        vllm=fastest(lambda case: case.peer is Peer.VLLM),
    )


def median_speed(case: Case, measurements: Sequence[Measurement]) -> float:
    return median(speeds(of_case(measurements, case)).values())


def row_of(case: Case, bases: Bases, measurements: Sequence[Measurement]) -> Row:
    outputs = of_case(measurements, case)
    plain = of_case(measurements, bases.plain)

    def multiple_of(base: Case | None) -> Estimate | None:
        return None if base is None else ratio(speeds(outputs), speeds(of_case(measurements, base)))

    counts, tokens = counts_of(outputs), token_count(outputs)
    acceptance, prediction = Acceptance.of(counts, tokens), Prediction.of(counts, tokens)
    base = of_case(measurements, bases.generate) if case.peer is Peer.ASSISTED and bases.generate else plain
    k = case.num_speculative_tokens
    return Row(
        case=case.name,
        peer=case.peer,
        temperature=case.temperature,
        batch_size=case.batch_size,
        num_speculative_tokens=k,
        weights=case.weights,
        tokens_per_second=median_speed(case, measurements),
        to_generate=multiple_of(bases.generate),
        to_assisted=multiple_of(bases.assisted),
        to_plain=ratio(speeds(outputs), speeds(plain)),
        to_fixed=multiple_of(bases.fixed) if case.peer is Peer.SPECPAIR else None,
        to_llama={
            weights: ratio(speeds(outputs), speeds(of_case(measurements, one))) for weights, one in bases.llama.items()
        },
        to_vllm=multiple_of(bases.vllm),
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
            measured=base.value,
        )
        for row in rows
        if row.num_speculative_tokens and row.cost_ratio is not None and row.predicted is not None
        if (base := row.to_plain if row.peer == Peer.SPECPAIR else row.to_generate) is not None
    ]
