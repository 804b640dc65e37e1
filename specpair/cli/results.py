"""A finished generation for people (one line) and programs (one JSON document)."""

import json
from collections.abc import Sequence

from specpair.rpc.messages import rule_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

_FINISH_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


def summary_line(summary: pb.GenerationSummary) -> str:
    """Speed, acceptance and seed."""
    seconds = summary.total_time_us / 1e6
    speculation = summary.speculation
    parts = [
        f"{summary.completion_token_count} tokens in {seconds:.2f} s",
        f"{tokens_per_second(summary):.1f} tokens/s",
        f"first token after {summary.time_to_first_token_us / 1000:.1f} ms",
    ]
    if speculation.draft_token_count:
        accepted = f"{speculation.accepted_token_count} of {speculation.draft_token_count}"
        parts.append(f"acceptance rate {speculation.acceptance_rate:.1%} ({accepted})")
    if speculation.round_count:
        parts.append(f"{speculation.tokens_per_round:.2f} tokens per round")
    if speculation.fallback_count:
        parts.append(f"{speculation.fallback_count} of {speculation.round_count} rounds without the draft")
    return " · ".join([*parts, f"seed {summary.seed}"])


def tokens_per_second(summary: pb.GenerationSummary) -> float:
    """Output tokens over the whole time of the request; 0 for a request that took none."""
    return summary.completion_token_count / summary.total_time_us * 1e6 if summary.total_time_us else 0.0


def json_document(text: str, token_ids: Sequence[int], summary: pb.GenerationSummary) -> str:
    """The completion with its usage and metrics; the counts are named as vLLM names them."""
    prompt, completion = summary.prompt_token_count, summary.completion_token_count
    document = {
        "text": text,
        "token_ids": list(token_ids),
        "finish_reason": _FINISH_REASONS.get(summary.finish_reason),
        "seed": summary.seed,
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
        "metrics": {
            "time_to_first_token_us": summary.time_to_first_token_us,
            "total_time_us": summary.total_time_us,
            "tokens_per_second": tokens_per_second(summary),
            "speculative_decoding": _speculative_decoding(summary.speculation),
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


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
    }
