"""The figures of `specpair top`, from the metrics endpoints."""

from dataclasses import dataclass
from typing import NamedTuple

from command.top.exposition import Exposition

LATENCIES = {
    "first token": "specpair_time_to_first_token_seconds",
    "between tokens": "specpair_inter_token_latency_seconds",
    "whole request": "specpair_e2e_request_latency_seconds",
}
PARTS = ("draft", "verify", "network", "rollback")
BLOCK_STATES = ("used", "shared", "kept", "free")
_DECODE = "specpair_spec_decode_"
_TOKENS_OF_ROUNDS = "specpair_inter_token_latency_seconds_count"
"""Without those of beams, whose passes are no rounds of `_DECODE`."""


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Median and 95th percentile, in seconds; None without requests."""

    median: float | None
    most: float | None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The work of the coordinator in a period of time."""

    seconds: float
    acceptance_rate: float | None
    acceptance_by_position: tuple[float | None, ...]
    """For each position of a proposal, first position first."""
    tokens_per_round: float | None
    """Output tokens per round; the first token, and what it forces, left out."""
    rounds_by_kind: dict[str, float]
    ahead_by_outcome: dict[str, float]
    """Rounds for which the draft worked ahead: hit, late, miss and plain."""
    tokens_per_second: float
    prompt_tokens_per_second: float
    requests_by_outcome: dict[str, float]
    latencies: dict[str, Quantiles]
    round_times: dict[str, float | None]
    """Mean seconds of each part of a round."""


class Instances(NamedTuple):
    """Processes of one service."""

    up: int
    known: int


@dataclass(frozen=True, kw_only=True)
class State:
    """The current state of the coordinator."""

    requests_running: float
    is_up: dict[str, bool | None]
    """Draft and target; None if the coordinator does not report it."""
    instances: dict[str, Instances]
    """Instances that the coordinator knows; zero if it does not report them."""
    speedup: float | None
    predicted_speedup: float | None
    break_even: float | None
    """Acceptance of a first token at which it pays at the present load."""
    best_length: float | None
    """Tokens per proposal that give the most tokens per second; 0 if none pay."""
    expected_gain: float | None
    """Tokens per second with that number over those without proposals."""


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """A model service: its current cache, and its work in a period of time."""

    blocks: dict[str, float]
    sequences_open: float
    evictions: float
    batch_sequences: float | None
    """Mean over forward passes."""
    forward_seconds: float | None
    queue_seconds: float | None
    tokens_per_second: float
    guessed: float
    """Tokens that were guessed for a draft model that is accelerated itself."""
    guesses_right: float


def traffic(added: Exposition, seconds: float) -> Traffic:
    """From the increase of the coordinator's counters."""
    drafted = added.total(f"{_DECODE}num_draft_tokens_total")
    accepted = added.total(f"{_DECODE}num_accepted_tokens_total")
    rounds = added.by(f"{_DECODE}rounds_total", "kind")
    count = sum(rounds.values())
    tokens = added.total("specpair_generation_tokens_total")
    return Traffic(
        seconds=seconds,
        acceptance_rate=_share(accepted, drafted),
        acceptance_by_position=_by_position(added),
        tokens_per_round=added.total(_TOKENS_OF_ROUNDS) / count if count else None,
        rounds_by_kind=rounds,
        ahead_by_outcome=added.by("specpair_ahead_rounds_total", "outcome"),
        tokens_per_second=tokens / seconds,
        prompt_tokens_per_second=added.total("specpair_prompt_tokens_total") / seconds,
        requests_by_outcome=added.by("specpair_requests_total", "outcome"),
        latencies={
            label: Quantiles(median=added.quantile(name, 0.5), most=added.quantile(name, 0.95))
            for label, name in LATENCIES.items()
        },
        round_times={part: added.mean("specpair_round_time_seconds", part=part) for part in PARTS},
    )


def state(now: Exposition) -> State:
    """From the coordinator's gauges."""
    up = {name: now.value(f"specpair_{name}_up") for name in ("draft", "target")}
    return State(
        requests_running=now.total("specpair_num_requests_running"),
        is_up={name: None if value is None else value > 0 for name, value in up.items()},
        instances={name: _instances(now, name) for name in up},
        speedup=now.value("specpair_speculation_speedup_ratio"),
        predicted_speedup=now.value("specpair_speculation_predicted_speedup_ratio"),
        break_even=now.value("specpair_speculation_break_even_acceptance"),
        best_length=now.value("specpair_speculation_best_num_tokens"),
        expected_gain=now.value("specpair_speculation_expected_gain_ratio"),
    )


def model_figures(now: Exposition, added: Exposition, seconds: float) -> ModelFigures:
    """From the gauges of a model service, and the increase of its counters."""
    blocks = now.by("specpair_cache_blocks", "state")
    return ModelFigures(
        blocks={name: blocks[name] for name in BLOCK_STATES if name in blocks},
        sequences_open=now.total("specpair_sequences_open"),
        evictions=added.total("specpair_cache_evictions_total"),
        batch_sequences=added.mean("specpair_model_batch_sequences"),
        forward_seconds=added.mean("specpair_model_forward_time_seconds"),
        queue_seconds=added.mean("specpair_model_queue_time_seconds"),
        tokens_per_second=added.total("specpair_model_tokens_total") / seconds,
        guessed=added.total("specpair_draft_guessed_tokens_total"),
        guesses_right=added.total("specpair_draft_accepted_guesses_total"),
    )


def uptime(now: Exposition, clock: float) -> float:
    """Seconds since the process started; 1 if unknown, so that totals stay totals. `clock` is Unix time."""
    started = now.value("process_start_time_seconds")
    return 1.0 if started is None else max(clock - started, 1.0)


def _instances(now: Exposition, service: str) -> Instances:
    up = now.by("specpair_instance_up", "address", service=service)
    return Instances(sum(value > 0 for value in up.values()), len(up))


def _by_position(added: Exposition) -> tuple[float | None, ...]:
    drafted = added.by(f"{_DECODE}num_draft_tokens_per_pos_total", "position")
    accepted = added.by(f"{_DECODE}num_accepted_tokens_per_pos_total", "position")
    positions = sorted((position for position, count in drafted.items() if count), key=int)
    return tuple(_share(accepted.get(position, 0.0), drafted[position]) for position in positions)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
