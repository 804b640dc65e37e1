"""The figures of a case, from all its turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from bench.case import Case
from bench.measurement import Counts, Measurement, Output
from bench.ratios import Estimate, ratio
from specpair.theory.speedup import expected_tokens


@dataclass(frozen=True, kw_only=True)
class RoundMeans:
    """Where the time of a round goes: means over all rounds, in milliseconds."""

    draft_ms: float
    """The draft's forward passes and sampling."""
    verify_ms: float
    """The target's forward pass and verification."""
    network_ms: float
    """Calls to both services (RPC and encoding) and time in their queues."""
    other_ms: float
    """Everything else until the client has the tokens: the coordinator's loop and the way to the client. For
    `transformers`, everything outside the forward passes."""
    total_ms: float
    work_share: float
    """Share of the round in which draft and target worked: the theorem counts only these. A speedup over K = 0 can
    hide the rest, since K = 0 has overhead too."""

    @classmethod
    def of(cls, counts: Counts, output_seconds: float) -> "RoundMeans":
        named = (counts.draft_seconds, counts.verify_seconds, counts.network_seconds)
        draft, verify, network, other = (
            1000 * seconds / max(1, counts.rounds) for seconds in (*named, output_seconds - sum(named))
        )
        return cls(
            draft_ms=draft,
            verify_ms=verify,
            network_ms=network,
            other_ms=other,
            total_ms=draft + verify + network + other,
            work_share=(draft + verify) / (draft + verify + network + other),
        )


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The acceptance of a case."""

    rate: float | None
    """Accepted per proposed token; None without proposals."""
    first: float | None
    """The same for the first token of each proposal: alpha of Leviathan et al., independent of K."""
    tokens_per_round: float
    drafted_per_round: float
    per_position: tuple[float, ...]
    """For each position, the share of the proposals with a token there that were accepted up to it."""

    @classmethod
    def of(cls, counts: Counts, tokens: int) -> "Acceptance":
        shares = zip_longest(counts.accepted_per_position, counts.drafted_per_position, fillvalue=0)
        per_position = tuple(accepted / drafted for accepted, drafted in shares if drafted)
        return cls(
            rate=counts.accepted / counts.drafted if counts.drafted else None,
            first=per_position[0] if per_position else None,
            tokens_per_round=tokens / max(1, counts.rounds),
            drafted_per_round=counts.drafted / max(1, counts.rounds),
            per_position=per_position,
        )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The prediction of Theorem 3.8 of Leviathan et al. ("Fast Inference from Transformers via Speculative Decoding")
    from the measured acceptance and cost."""

    cost_ratio: float
    """c: the time of a draft token over that of a target pass, in the same rounds."""
    speedup: float
    """Speedup over the target alone, from the acceptance at each position; K may differ between rounds."""

    @classmethod
    def of(cls, counts: Counts, tokens: int) -> "Prediction | None":
        """None without proposals or measured times.

        Tokens per round over 1 + c K, where K is the mean over the rounds. For a fixed K this is the theorem with its
        first factor, Equation (1), measured instead of computed from one acceptance for all positions.
        """
        if not counts.drafted or not counts.verify_seconds:
            return None
        return cls(
            cost_ratio=(counts.draft_seconds / counts.drafted) / (counts.verify_seconds / counts.rounds),
            speedup=(tokens / counts.rounds) / (1 + counts.draft_seconds / counts.verify_seconds),
        )


def equivalent_acceptance(tokens_per_round: float, num_speculative_tokens: int) -> float:
    """The acceptance, equal at each position, that gives these tokens per round: Equation (1) solved for alpha."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_tokens(middle, num_speculative_tokens) < tokens_per_round:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def of_case(measurements: Sequence[Measurement], case: Case) -> dict[tuple[int, int], Output]:
    """The outputs of a case by (prompt, repetition)."""
    return {(m.turn.prompt, m.turn.repetition): m.output for m in measurements if m.turn.case == case}


def speeds(outputs: Mapping[tuple[int, int], Output]) -> dict[tuple[int, int], float]:
    return {key: output.tokens_per_second for key, output in outputs.items()}


def counts_of(outputs: Mapping[tuple[int, int], Output]) -> Counts:
    return Counts.total(output.counts for output in outputs.values())


def token_count(outputs: Mapping[tuple[int, int], Output]) -> int:
    """Tokens after the first ones."""
    return sum(output.tokens for output in outputs.values())


def share_of_prediction(
    outputs: Mapping[tuple[int, int], Output], base: Mapping[tuple[int, int], Output]
) -> Estimate | None:
    """Measured speedup over `base`, as a multiple of the one that theory predicts for the same turn.

    None unless every turn has a prediction.
    """
    predicted = {key: Prediction.of(output.counts, output.tokens) for key, output in outputs.items()}
    known = {key: one.speedup for key, one in predicted.items() if one is not None}
    if len(known) < len(predicted):
        return None
    measured = {key: speed / speeds(base)[key] for key, speed in speeds(outputs).items()}
    return ratio(measured, known)


def same_text(outputs: Mapping[tuple[int, int], Output], others: Mapping[tuple[int, int], Output]) -> float:
    """Share of the outputs that equal those of the other case in the same turns."""
    pairs = [pair for key in outputs for pair in zip(outputs[key].token_ids, others[key].token_ids, strict=True)]
    return sum(own == other for own, other in pairs) / len(pairs)
