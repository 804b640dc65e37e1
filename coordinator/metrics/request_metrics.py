"""Metrics of requests and their outputs: outcomes, tokens and times."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.exemplar import observe
from coordinator.metrics.round_metrics import SPECULATION_LABELS, speculation_labels
from coordinator.requests.finish_reason import FinishReason
from specpair.options import Drafter, Rule, StructureKind

ACCEPTANCE_BUCKETS = tuple(round(0.05 * i, 2) for i in range(1, 21))
TOKENS_BUCKETS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 17.0, 33.0, 65.0)
"""From 1 (the target alone) over the usual range of pairs to K + 1 for the default maximum and the largest K."""
# vLLM's buckets, with smaller ones before them for small models.
FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
INTER_TOKEN_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.1, 0.2),
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Outcome(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The client left or read nothing, or another prompt of its body failed."""


class OutputSample(NamedTuple):
    """An output that has ended, whatever the reason."""

    drafter: Drafter | None
    """The drafter asked last; None if none was."""
    rule: Rule
    finish_reason: FinishReason | None
    """None if it failed or was cancelled."""
    draft_token_count: int
    acceptance_rate: float
    tokens_per_round: float
    structure: StructureKind | None = None
    """What it had to look like; None for anything."""


class RequestMetrics:
    """Counters and times of requests, outputs and their tokens. Times are in seconds."""

    def __init__(self, registry: CollectorRegistry):
        requests = Counter(
            "specpair_requests",
            "Requests that have ended, one for each prompt; refused ones count as failed, and as cancelled those whose "
            "client left, or of whose body another prompt failed.",
            ["outcome"],
            registry=registry,
        )
        self._requests = {outcome: requests.labels(outcome.value) for outcome in Outcome}
        success = Counter(
            "specpair_request_success",
            "Outputs that finished, by reason: stop or length.",
            ["finished_reason"],
            registry=registry,
        )
        self._success = {reason: success.labels(reason.value) for reason in FinishReason}
        self._structured = structure_counters(registry)
        self._running = Gauge("specpair_num_requests_running", "Requests that are running.", registry=registry)
        counters = token_counters(registry)
        self._prompt_tokens, self._cached_tokens, self._generation_tokens, self._forced_tokens = counters
        self._first_token = Histogram(
            "specpair_time_to_first_token_seconds",
            "Time from the arrival of a request to the first token of each of its outputs.",
            buckets=FIRST_TOKEN_BUCKETS,
            registry=registry,
        )
        self._inter_token = Histogram(
            "specpair_inter_token_latency_seconds",
            "Time between tokens of an output, without the pauses of a client that is slow to read; the tokens of a "
            "round or of a run, which arrive together, share its time equally.",
            buckets=INTER_TOKEN_BUCKETS,
            registry=registry,
        )
        self._latency = Histogram(
            "specpair_e2e_request_latency_seconds",
            "Time from the arrival of a finished request to its end.",
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._acceptance = Histogram(
            "specpair_request_acceptance_rate",
            "Accepted share of an output's proposed tokens, for all ended outputs that had proposals.",
            SPECULATION_LABELS,
            buckets=ACCEPTANCE_BUCKETS,
            registry=registry,
        )
        self._tokens_per_round = Histogram(
            "specpair_request_tokens_per_round",
            "Output tokens per round, the first token left out, for all ended outputs that had proposals.",
            SPECULATION_LABELS,
            buckets=TOKENS_BUCKETS,
            registry=registry,
        )

    def watch_running(self, count: Callable[[], int]) -> None:
        """Takes a function that returns the number of running requests."""
        self._running.set_function(count)

    def add_prompt(self, token_count: int) -> None:
        """Counts the prompt of an admitted request."""
        self._prompt_tokens.inc(token_count)

    def add_cached_prompt(self, token_count: int) -> None:
        """Counts the tokens of a prompt that the target had in its cache."""
        self._cached_tokens.inc(token_count)

    def add_first_token(self, elapsed: float, forced_count: int = 0) -> None:
        """Counts an output's first token, `elapsed` after the arrival of its request, and those that it forces."""
        self._generation_tokens.inc(1 + forced_count)
        self._forced_tokens.inc(forced_count)
        observe(self._first_token, elapsed)

    def add_tokens(self, count: int, elapsed: float, forced_count: int = 0) -> None:
        """Counts the tokens of a later round, `elapsed` after the previous one; `forced_count` of them were forced."""
        self._generation_tokens.inc(count)
        self._forced_tokens.inc(forced_count)
        observe(self._inter_token, elapsed / max(count, 1), count)

    def add_beam(self, token_count: int, elapsed: float) -> None:
        """Counts a beam that a search found, whose tokens come all at once, `elapsed` after the request's arrival."""
        self._generation_tokens.inc(token_count)
        observe(self._first_token, elapsed)

    def add_output(self, sample: OutputSample) -> None:
        """Counts an output that has ended."""
        if sample.finish_reason is not None:
            self._success[sample.finish_reason].inc()
        if sample.structure is not None:
            self._structured[sample.structure].inc()
        if sample.draft_token_count:
            labels = speculation_labels(sample.drafter, sample.rule)
            observe(self._acceptance.labels(*labels), sample.acceptance_rate)
            observe(self._tokens_per_round.labels(*labels), sample.tokens_per_round)

    def add_request(self, outcome: Outcome, elapsed: float) -> None:
        """Counts a request that ended `elapsed` after its arrival."""
        self._requests[outcome].inc()
        if outcome is Outcome.FINISHED:
            observe(self._latency, elapsed)


def token_counters(registry: CollectorRegistry) -> tuple[Counter, Counter, Counter, Counter]:
    """Counters of prompt tokens, of those that were cached, of generated ones, and of those that were forced."""
    texts = {
        "specpair_prompt_tokens": "Tokens of prompts, once for each admitted request.",
        "specpair_cached_prompt_tokens": "Tokens of prompts that the target had in its cache, and did not read.",
        "specpair_generation_tokens": "Generated tokens that belong to an output.",
        "specpair_forced_tokens": "Generated tokens that were the only ones that a structured output allows at their "
        "places: no model was asked for them.",
    }
    prompt, cached, generated, forced = (Counter(name, text, registry=registry) for name, text in texts.items())
    return prompt, cached, generated, forced


def structure_counters(registry: CollectorRegistry) -> dict[StructureKind, Counter]:
    """Counters of structured outputs."""
    counter = Counter(
        "specpair_structured_outputs",
        "Outputs that had to look like something and have ended, whatever the reason, by how that was described.",
        ["kind"],
        registry=registry,
    )
    return {kind: counter.labels(kind.value) for kind in StructureKind}
