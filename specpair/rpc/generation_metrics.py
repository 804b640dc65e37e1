"""The metrics of one output, or of several together, as JSON. Counts have vLLM's names."""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from specpair.rpc.messages import drafter_from_proto, rule_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

ADDED = tuple(
    field.name for field in pb.SpeculationSummary.DESCRIPTOR.fields if field.name.endswith(("_count", "_time_us"))
)
"""Fields that add up over several outputs."""


def generation_metrics(summary: pb.GenerationSummary) -> dict[str, object]:
    """Times, speed, and counts of speculative decoding."""
    return {
        "time_to_first_token_us": summary.time_to_first_token_us,
        "total_time_us": summary.total_time_us,
        "tokens_per_second": tokens_per_second(summary),
        **_sampling(summary),
        "speculative_decoding": _speculative_decoding(summary.speculation),
    }


def _sampling(summary: pb.GenerationSummary) -> dict[str, object]:
    """How tokens were drawn; nothing from coordinators that do not say."""
    if not summary.HasField("sampling"):
        return {}
    return {"sampling": MessageToDict(summary.sampling, preserving_proto_field_name=True)}


def tokens_per_second(summary: pb.GenerationSummary) -> float:
    """Output tokens over the total time of the request; 0 for a request that took no time."""
    return summary.completion_token_count / summary.total_time_us * 1e6 if summary.total_time_us else 0.0


def _speculative_decoding(speculation: pb.SpeculationSummary) -> dict[str, object]:
    return {
        "num_rounds": speculation.round_count,
        "num_drafts": speculation.draft_round_count,
        "num_draft_tokens": speculation.draft_token_count,
        "num_accepted_tokens": speculation.accepted_token_count,
        "num_draft_tokens_per_pos": list(speculation.drafted_per_position),
        "num_accepted_tokens_per_pos": list(speculation.accepted_per_position),
        "acceptance_rate": speculation.acceptance_rate,
        "tokens_per_round": speculation.tokens_per_round,
        "num_fallbacks": speculation.fallback_count,
        "draft_time_us": speculation.draft_time_us,
        "verify_time_us": speculation.verify_time_us,
        "network_time_us": speculation.network_time_us,
        "rule": rule_from_proto(speculation.rule).value,
        "lenience": speculation.lenience,
        "lossy": speculation.lossy,
        "drafter": drafter_from_proto(speculation.drafter),
        "adaptive": speculation.adaptive,
        "num_ahead_hits": speculation.ahead_hit_count,
        "num_ahead_late": speculation.ahead_late_count,
        "num_ahead_misses": speculation.ahead_miss_count,
        "num_ahead_plain": speculation.ahead_plain_count,
        "num_forced_tokens": speculation.forced_token_count,
        **_by_draft(speculation),
    }


def _by_draft(speculation: pb.SpeculationSummary) -> dict[str, object]:
    """What each of several drafts did, and what accelerated a draft's model; nothing where there is neither."""
    drafts = [
        {name.name: getattr(draft, name.name) for name in draft.DESCRIPTOR.fields} for draft in speculation.drafts
    ]
    own = speculation.own_draft
    guesses = {name.name: getattr(own, name.name) for name in own.DESCRIPTOR.fields}
    shown: dict[str, object] = {"drafts": drafts} if drafts else {}
    if speculation.HasField("own_draft"):
        shown["own_draft"] = guesses
    return shown


def total(summaries: Sequence[pb.GenerationSummary]) -> pb.GenerationSummary:
    """Combines summaries: counts and work times add up; the total time is the longest, that to the first token the
    shortest."""
    if len(summaries) == 1:
        return summaries[0]
    sums = pb.GenerationSummary()
    sums.CopyFrom(summaries[0])
    sums.completion_token_count = sum(summary.completion_token_count for summary in summaries)
    sums.time_to_first_token_us = min(summary.time_to_first_token_us for summary in summaries)
    sums.total_time_us = max(summary.total_time_us for summary in summaries)
    sums.speculation.CopyFrom(_total_speculation([summary.speculation for summary in summaries]))
    return sums


def _total_speculation(speculations: Sequence[pb.SpeculationSummary]) -> pb.SpeculationSummary:
    sums = pb.SpeculationSummary()
    sums.CopyFrom(speculations[0])
    for name in ADDED:
        setattr(sums, name, sum(getattr(speculation, name) for speculation in speculations))
    for name in ("drafted_per_position", "accepted_per_position"):
        sums.ClearField(name)
        getattr(sums, name).extend(_add_positions(getattr(speculation, name) for speculation in speculations))
    _add_drafts(sums, speculations)
    sums.acceptance_rate = sums.accepted_token_count / max(sums.draft_token_count, 1)
    committed = sum(speculation.tokens_per_round * speculation.round_count for speculation in speculations)
    sums.tokens_per_round = committed / max(sums.round_count, 1)
    return sums


def _add_drafts(sums: pb.SpeculationSummary, speculations: Sequence[pb.SpeculationSummary]) -> None:
    """Adds the counts of each draft, and those of guesses."""
    by_name: dict[str, list[pb.DraftSummary]] = {}
    for draft in (draft for speculation in speculations for draft in speculation.drafts):
        by_name.setdefault(draft.name, []).append(draft)
    sums.ClearField("drafts")
    for name, own in by_name.items():
        _add_counts(sums.drafts.add(name=name), own)
    if guessed := [speculation.own_draft for speculation in speculations if speculation.HasField("own_draft")]:
        _add_counts(sums.own_draft, guessed)


def _add_counts(sums: Any, messages: Sequence[Any]) -> None:
    for name in (field.name for field in sums.DESCRIPTOR.fields if field.name != "name"):
        setattr(sums, name, sum(getattr(message, name) for message in messages))


def _add_positions(lists: Iterable[Sequence[int]]) -> list[int]:
    sums: list[int] = []
    for counts in lists:
        sums += [0] * (len(counts) - len(sums))
        for position, count in enumerate(counts):
            sums[position] += count
    return sums
