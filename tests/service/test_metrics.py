"""The metrics of the real services: the names are those of the documentation, the sums those of the requests."""

import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.admission.places import Refusal
from coordinator.metrics.http_metrics import MODEL, OTHER, PAGE, PATHS
from coordinator.peers.ahead_blocks import BlockFate
from coordinator.peers.early_calls import EarlyResult
from draft_service.ahead.counts import Result
from specpair.model_info import VocabularyMethod
from specpair.models.chain_miss import ChainMiss
from specpair.models.graph_miss import GraphMiss
from specpair.options import Drafter, Rule, StructureKind
from specpair.sequences import sequence_limits
from specpair.sequences.conditional_calls import ConditionOutcome
from specpair.sequences.sequel import SequelOutcome
from target_service.late_rows import LateOutcome
from tests.service.metrics_load import TRACE_ID, Load, loaded_pair, total

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| ([CGH]) \|([\w, ]*)\|", re.MULTILINE)
TYPES = {"C": "counter", "G": "gauge", "H": "histogram"}
BOUNDED = {
    "drafter": {drafter.value for drafter in Drafter},
    "rule": {rule.value for rule in Rule},
    "draft": {"draft"},
    "position": {str(position) for position in range(64)},
    "part": {"draft", "verify", "network", "rollback"},
    "outcome": {
        *("finished", "failed", "cancelled"),
        *(
            outcome.value
            for outcomes in (ConditionOutcome, SequelOutcome, AheadOutcome, LateOutcome)
            for outcome in outcomes
        ),
    },
    "accepted": {*map(str, range(8)), "8+"},
    "fate": {fate.value for fate in BlockFate},
    "finished_reason": {"stop", "length"},
    "reason": {
        reason.value for reasons in (Refusal, sequence_limits.NoRoom, GraphMiss, ChainMiss) for reason in reasons
    },
    "state": {"used", "shared", "kept", "free"},
    "kind": {
        *("draft", "plain", "fallback", "prefill", "decode", "repeated", "reopened", "moved"),
        *(kind.value for kind in StructureKind),
    },
    "path": {*PATHS, MODEL, PAGE, OTHER},
    "result": {result.value for results in (Result, EarlyResult) for result in results},
    "method": {method.value for method in VocabularyMethod},
    "end": {"used", "unused", "dropped", "failed"},
    "status": {"200", "400", "401", "404", "421", "429", "499", "500", "503"},
}
LABEL_OF_PARTS = {"le"}


@pytest.fixture(scope="module")
async def load(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Load]:
    async with loaded_pair(tmp_path_factory.mktemp("models")) as load:
        yield load


def documented(*sections: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric in these sections of the documentation."""
    parts = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL))
    return {
        name: (TYPES[kind], frozenset(filter(None, labels.strip().split(", "))))
        for section in sections
        for name, kind, labels in ROW.findall(parts[section])
    }


def exported(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """The same of what a service says, without that of its process."""
    families = [family for family in text_string_to_metric_families(text) if is_ours(family)]
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - LABEL_OF_PARTS,
        )
        for family in families
    }


def is_ours(family: Metric) -> bool:
    return not family.name.startswith(("process_", "python_"))


@pytest.mark.parametrize(
    ("service", "sections"),
    [
        ("coordinator", ["Coordinator"]),
        ("draft", ["Draft and target", "Draft with another vocabulary", "Draft that works ahead"]),
        ("target", ["Draft and target", "Target"]),
    ],
)
async def test_names_types_and_labels_are_documented(load: Load, service: str, sections: list[str]) -> None:
    assert exported(load.texts[service]) == documented(*sections, "All three")


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("service", ["coordinator", "draft", "target"])
def test_promtool_finds_nothing(load: Load, service: str) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=load.texts[service], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_labels_are_bounded(load: Load) -> None:
    seen: dict[str, set[str]] = {}
    for text in load.texts.values():
        for family in filter(is_ours, text_string_to_metric_families(text)):
            for sample in family.samples:
                for label, value in sample.labels.items():
                    seen.setdefault(label, set()).add(value)
    assert {label: values - BOUNDED[label] for label, values in seen.items() if label in BOUNDED} == {
        label: set() for label in BOUNDED
    }
    others = {"le", "version", "service", "address", "grpc_type", "grpc_service", "grpc_method", "grpc_code"}
    others |= {"model", "dtype", "quantization"}  # one value each: what the process serves
    assert seen.keys() - BOUNDED.keys() == others


async def test_there_was_something_to_count(load: Load) -> None:
    outcomes = load.outcomes
    assert outcomes["finished"] >= 15 and outcomes["cancelled"] == 3 and outcomes["failed"] == 2
    assert all(load.coordinator("specpair_spec_decode_rounds_total", kind=kind) for kind in ("draft", "fallback"))
    unfinished = [generation for generation in load.generations if generation.output.finish_reason is None]
    assert len(unfinished) >= 4
    assert sum(generation.acceptance.accepted_token_count for generation in unfinished) > 0


async def test_speculation_adds_up(load: Load) -> None:
    """For each drafter and rule: the counters are the sums over all outputs, the unfinished ones included."""
    groups = {(generation.proposals.asked_drafter, generation.request.rule) for generation in load.generations}
    for drafter, rule in groups - {(None, rule) for rule in Rule}:
        members = [
            generation.acceptance
            for generation in load.generations
            if (generation.proposals.asked_drafter, generation.request.rule) == (drafter, rule)
        ]
        labels = {"drafter": str(drafter), "rule": str(rule)}
        for name, attribute in (
            ("drafts", "draft_round_count"),
            ("draft_tokens", "draft_token_count"),
            ("accepted_tokens", "accepted_token_count"),
        ):
            counted = load.coordinator(f"specpair_spec_decode_num_{name}_total", **labels)
            assert counted == sum(getattr(acceptance, attribute) for acceptance in members), (labels, name)


async def test_summaries_are_a_part_of_it(load: Load) -> None:
    """What clients were told, and what outputs without a client to tell did, is what was counted."""
    told = {summary.seed for summary in load.summaries}
    untold = [entry.acceptance for entry in load.generations if entry.request.sampling.seed not in told]
    for name in ("draft", "accepted"):
        parts = [*(summary.speculation for summary in load.summaries), *untold]
        counted = load.coordinator(f"specpair_spec_decode_num_{name}_tokens_total")
        assert counted == sum(getattr(part, f"{name}_token_count") for part in parts)
    assert sum(acceptance.draft_token_count for acceptance in untold) > 0


async def test_work_ahead_adds_up(load: Load) -> None:
    for outcome in AheadOutcome:
        counted = load.coordinator("specpair_ahead_rounds_total", outcome=outcome.value)
        assert counted == sum(acceptance.ahead_counts[outcome] for acceptance in load.acceptances), outcome
    used = sum(acceptance.ahead_counts[AheadOutcome.HIT] for acceptance in load.acceptances)
    assert 0 < used <= load.coordinator("specpair_ahead_blocks_total", fate="used")
    assert load.coordinator("specpair_ahead_verifications_total", result="met") <= used
    assert load.coordinator("specpair_ahead_hidden_seconds_total") > 0


async def test_rounds_add_up(load: Load) -> None:
    rounds = "specpair_spec_decode_rounds_total"
    assert load.coordinator(rounds) == sum(acceptance.round_count for acceptance in load.acceptances)
    assert load.coordinator(rounds, kind="draft") == sum(entry.draft_round_count for entry in load.acceptances)
    assert load.coordinator(rounds, kind="fallback") == sum(entry.fallback_count for entry in load.acceptances)
    times = "specpair_round_time_seconds_count"
    for part in ("verify", "network", "rollback"):
        assert load.coordinator(times, part=part) == load.coordinator(rounds)
    assert load.coordinator(times, part="draft") >= load.coordinator(rounds, kind="draft")
    assert load.coordinator("specpair_round_time_seconds_sum", part="rollback") > 0


async def test_times_are_those_of_the_requests(load: Load) -> None:
    seconds = "specpair_round_time_seconds_sum"
    for part in ("draft", "verify"):
        counted = load.coordinator(seconds, part=part)
        assert counted == pytest.approx(sum(getattr(e, f"{part}_time") for e in load.acceptances))
    outside = load.coordinator(seconds, part="network") + load.coordinator(seconds, part="rollback")
    # A rollback that is longer than all time outside the passes leaves no network time, not less than none.
    assert outside == pytest.approx(sum(e.network_time for e in load.acceptances), rel=1e-4)


async def test_positions_add_up(load: Load) -> None:
    for name, attribute in (("draft", "drafted_per_position"), ("accepted", "accepted_per_position")):
        positions = f"specpair_spec_decode_num_{name}_tokens_per_pos_total"
        assert load.coordinator(positions) == load.coordinator(f"specpair_spec_decode_num_{name}_tokens_total")
        for position in range(5):
            expected = sum_at(position, (getattr(acceptance, attribute) for acceptance in load.acceptances))
            assert load.coordinator(positions, position=str(position)) == expected


def sum_at(position: int, lists: Iterable[list[int]]) -> int:
    return sum(counts[position] for counts in lists if position < len(counts))


async def test_requests_and_tokens_add_up(load: Load) -> None:
    for outcome, count in load.outcomes.items():
        assert load.coordinator("specpair_requests_total", outcome=outcome) == count
    reasons = Counter(str(generation.output.finish_reason) for generation in load.generations)
    for reason in ("stop", "length"):
        assert load.coordinator("specpair_request_success_total", finished_reason=reason) == reasons[reason] > 0
    lengths = [len(generation.output.token_ids) for generation in load.generations]
    assert load.coordinator("specpair_generation_tokens_total") == sum(lengths)
    prompts = sum(len(choices.generations[0].request.prompt_ids) for choices in load.choices)
    assert load.coordinator("specpair_prompt_tokens_total") == prompts
    cached = sum(choices.generations[0].cached_prompt_token_count for choices in load.choices)
    assert 0 < cached < prompts and load.coordinator("specpair_cached_prompt_tokens_total") == cached
    begun = sum(length > 0 for length in lengths)
    assert load.coordinator("specpair_time_to_first_token_seconds_count") == begun
    assert load.coordinator("specpair_inter_token_latency_seconds_count") == sum(lengths) - begun
    assert load.coordinator("specpair_e2e_request_latency_seconds_count") == load.outcomes["finished"]


async def test_histograms_of_outputs(load: Load) -> None:
    drafted = [generation for generation in load.generations if generation.acceptance.draft_token_count]
    rates = sum(generation.acceptance.acceptance_rate for generation in drafted)
    tokens = sum(entry.acceptance.tokens_per_round(len(entry.output.token_ids)) for entry in drafted)
    for name, expected in (("acceptance_rate", rates), ("tokens_per_round", tokens)):
        assert load.coordinator(f"specpair_request_{name}_count") == len(drafted)
        assert load.coordinator(f"specpair_request_{name}_sum") == pytest.approx(expected)


async def test_model_services_count_what_they_were_asked(load: Load) -> None:
    """Each verdict is a row for each proposed token and one more; each call waited once, also one for a run."""
    pair = load.pair
    assert pair.draft is not None
    for model in (pair.draft, pair.target):
        passes = total(model.registry, "specpair_model_batch_tokens_count")
        assert passes == total(model.registry, "specpair_model_forward_time_seconds_count") > 0
        fed = total(model.registry, "specpair_model_batch_tokens_sum")
        assert fed == total(model.registry, "specpair_model_tokens_total")
        states = {state: total(model.registry, "specpair_cache_blocks", state=state) for state in BOUNDED["state"]}
        assert states["used"] + states["kept"] + states["free"] == model.host.engine.cache.block_count
    for service in ("draft", "target"):  # before they were stopped, with a request under way
        assert "specpair_sequences_open 0.0" in load.texts[service]
    outputs = sum(len(generation.output.token_ids) > 0 for generation in load.generations)
    verified = load.coordinator("specpair_spec_decode_rounds_total") + outputs
    asked = verified + load.coordinator("specpair_spec_decode_num_draft_tokens_total")
    # Calls whose answer nobody took are counted there alone.
    assert asked <= total(pair.target.registry, "specpair_model_tokens_total", kind="decode") <= asked + 60
    assert 0 < total(pair.target.registry, "specpair_model_queue_time_seconds_count") <= verified + 20


async def test_peers_that_are_gone_are_down(load: Load) -> None:
    assert "specpair_target_up 1.0" in load.texts["coordinator"]
    assert "specpair_draft_up 1.0" in load.texts["coordinator"]
    assert load.coordinator("specpair_target_up") == load.coordinator("specpair_draft_up") == 0


async def test_speedup_is_there_once_it_is_known(load: Load) -> None:
    assert "\nspecpair_speculation_speedup_ratio " in load.texts["coordinator"]
    assert "\nspecpair_speculation_predicted_speedup_ratio " in load.texts["coordinator"]


@pytest.mark.parametrize(
    "name", ["time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"]
)
async def test_times_of_a_traced_request_carry_its_trace(load: Load, name: str) -> None:
    families = {family.name: family for family in parse_openmetrics(load.openmetrics)}
    exemplars = [sample.exemplar for sample in families[f"specpair_{name}"].samples if sample.exemplar is not None]
    assert exemplars and all(exemplar.labels == {"trace_id": TRACE_ID} for exemplar in exemplars)
    assert TRACE_ID not in load.texts["coordinator"]
