"""Metrics of rounds and requests, one sample at a time."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from coordinator.adaptive import Worth
from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.metrics import CoordinatorMetrics, Outcome, OutputSample, RoundKind
from coordinator.metrics.position_collector import PositionCollector, per_position
from coordinator.requests.finish_reason import FinishReason
from specpair.options import Drafter, Rule
from specpair.server.metrics_text import render
from specpair.tracing import reset_trace_id, set_trace_id
from tests.unit.coordinator.metrics.finished_rounds import MadeRound

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def metrics() -> CoordinatorMetrics:
    return CoordinatorMetrics()


@pytest.fixture
def trace() -> Iterator[None]:
    token = set_trace_id(TRACE_ID)
    yield
    reset_trace_id(token)


def exemplars(metrics: CoordinatorMetrics) -> list[tuple[str, dict[str, str]]]:
    text, _ = render(metrics.registry, "application/openmetrics-text")
    families = text_string_to_metric_families(text.decode())
    return [
        (family.name, entry.exemplar.labels)
        for family in families
        for entry in family.samples
        if entry.exemplar is not None
    ]


def test_work_ahead_is_counted_by_outcome_and_by_what_was_accepted_before(metrics: CoordinatorMetrics) -> None:
    for count in (0, 7, 8, 12):
        metrics.add_round(MadeRound(ahead=AheadOutcome.HIT, accepted_before=count, hidden_time=0.25))
    metrics.add_round(MadeRound(ahead=AheadOutcome.MISS, accepted_before=7))
    metrics.add_round(MadeRound())
    value = metrics.registry.get_sample_value

    def rounds(outcome: str, accepted: str) -> float | None:
        return value("specpair_ahead_rounds_total", {"outcome": outcome, "accepted": accepted})

    assert [rounds("hit", accepted) for accepted in ("0", "1", "7", "8+", "12")] == [1, 0, 1, 2, None]
    assert [rounds("miss", "7"), rounds("late", "7")] == [1, 0]
    assert value("specpair_ahead_hidden_seconds_total") == 1.0
    assert value("specpair_spec_decode_rounds_total", {"kind": "draft"}) == 6


def test_round_without_proposals_is_no_draft(metrics: CoordinatorMetrics) -> None:
    plain = MadeRound(kind=RoundKind.PLAIN, drafter=None, drafted_count=0, accepted_count=0, draft_compute=None)
    metrics.rounds.add(plain)
    metrics.rounds.add(replace(plain, kind=RoundKind.FALLBACK))
    value = metrics.registry.get_sample_value
    assert [value("specpair_spec_decode_rounds_total", {"kind": kind}) for kind in RoundKind] == [0, 1, 1]
    assert value("specpair_round_time_seconds_count", {"part": "draft"}) == 0
    assert value("specpair_round_time_seconds_count", {"part": "verify"}) == 2
    drafts = [
        value("specpair_spec_decode_num_drafts_total", {"drafter": drafter, "rule": rule})
        for drafter in Drafter
        for rule in Rule
    ]
    assert set(drafts) == {0.0}, "series begin at 0, so that their first rise can be seen"


def test_drafter_that_nobody_knew_is_a_label_of_its_own(metrics: CoordinatorMetrics) -> None:
    metrics.rounds.add(MadeRound(drafter=None))
    labels = {"drafter": "unknown", "rule": "token"}
    assert metrics.registry.get_sample_value("specpair_spec_decode_num_draft_tokens_total", labels) == 4


def test_positions() -> None:
    registry, positions = CollectorRegistry(), PositionCollector(4)
    registry.register(positions)

    def counts(name: str) -> list[float | None]:
        metric = f"specpair_spec_decode_num_{name}_tokens_per_pos_total"
        return [registry.get_sample_value(metric, {"position": str(i)}) for i in range(5)]

    assert counts("draft") == counts("accepted") == [0, 0, 0, 0, None], "so that their first rise can be seen"
    for drafted, accepted in ((3, 3), (3, 0), (1, 1), (2, 1)):
        positions.add(drafted, accepted)
    assert counts("draft") == [4, 3, 2, 0, None]
    assert counts("accepted") == [3, 1, 1, 0, None]


def test_per_position_keeps_the_sum() -> None:
    counts = [5, 0, 2, 7, 1]
    assert sum(per_position(counts)) == sum(length * count for length, count in enumerate(counts))
    assert per_position(counts) == [10, 10, 8, 1]


def test_tokens_of_a_round_share_its_time(metrics: CoordinatorMetrics) -> None:
    metrics.requests.add_tokens(4, 0.02)
    value = metrics.registry.get_sample_value
    assert value("specpair_inter_token_latency_seconds_count") == 4
    assert value("specpair_inter_token_latency_seconds_sum") == pytest.approx(0.02)
    assert value("specpair_inter_token_latency_seconds_bucket", {"le": "0.0025"}) == 0
    assert value("specpair_inter_token_latency_seconds_bucket", {"le": "0.005"}) == 4
    assert value("specpair_generation_tokens_total") == 4


def test_only_finished_requests_have_a_latency(metrics: CoordinatorMetrics) -> None:
    for outcome in Outcome:
        metrics.requests.add_request(outcome, 0.5)
    value = metrics.registry.get_sample_value
    assert [value("specpair_requests_total", {"outcome": outcome}) for outcome in Outcome] == [1, 1, 1]
    assert value("specpair_e2e_request_latency_seconds_count") == 1


@pytest.mark.parametrize(("rate", "bucket", "below"), [(1.0, "1.0", "0.95"), (0.4, "0.4", "0.35")])
def test_acceptance_in_steps(metrics: CoordinatorMetrics, rate: float, bucket: str, below: str) -> None:
    metrics.requests.add_output(OutputSample(Drafter.MODEL, Rule.BLOCK, FinishReason.STOP, 10, rate, 2.0))
    name, labels = "specpair_request_acceptance_rate_bucket", {"drafter": "model", "rule": "block"}
    value = metrics.registry.get_sample_value
    assert (value(name, {**labels, "le": below}), value(name, {**labels, "le": bucket})) == (0, 1)


def test_output_without_proposals_has_no_acceptance(metrics: CoordinatorMetrics) -> None:
    metrics.requests.add_output(OutputSample(None, Rule.BLOCK, FinishReason.LENGTH, 0, 0.0, 1.0))
    text = render(metrics.registry)[0].decode()
    assert "specpair_request_acceptance_rate_count" not in text
    assert 'specpair_request_success_total{finished_reason="length"} 1.0' in text


def test_without_a_trace_there_are_no_exemplars(metrics: CoordinatorMetrics) -> None:
    metrics.requests.add_request(Outcome.FINISHED, 0.5)
    assert exemplars(metrics) == []


def test_histograms_of_requests_carry_the_trace(metrics: CoordinatorMetrics, trace: None) -> None:
    metrics.requests.add_first_token(0.01)
    metrics.requests.add_tokens(2, 0.01)
    metrics.requests.add_output(OutputSample(Drafter.MODEL, Rule.BLOCK, FinishReason.STOP, 10, 0.5, 2.0))
    metrics.requests.add_request(Outcome.FINISHED, 0.5)
    named = dict(exemplars(metrics))
    assert named == {key: {"trace_id": TRACE_ID} for key in named}
    assert named.keys() == {
        "specpair_time_to_first_token_seconds",
        "specpair_inter_token_latency_seconds",
        "specpair_e2e_request_latency_seconds",
        "specpair_request_acceptance_rate",
        "specpair_request_tokens_per_round",
    }
    assert TRACE_ID not in render(metrics.registry)[0].decode()


def test_a_trace_id_that_is_none_is_left_out(metrics: CoordinatorMetrics) -> None:
    token = set_trace_id("x" * 200)
    metrics.requests.add_request(Outcome.FINISHED, 0.5)
    reset_trace_id(token)
    assert exemplars(metrics) == []


def test_what_proposals_are_worth_has_samples_as_far_as_it_is_known(metrics: CoordinatorMetrics) -> None:
    known: list[Worth | None] = [None]
    metrics.watch_worth(lambda: known[0])
    prefix = "specpair_speculation_"

    def values() -> list[float | None]:
        names = ("break_even_acceptance", "best_num_tokens", "expected_gain_ratio")
        return [metrics.registry.get_sample_value(prefix + name) for name in names]

    assert values() == [None, None, None]
    known[0] = Worth(output_count=4, break_even=0.3)
    assert values() == [0.3, None, None]
    known[0] = Worth(output_count=4, break_even=0.3, acceptance=0.6, best_length=2, gain=1.2)
    assert values() == [0.3, 2.0, 1.2]
