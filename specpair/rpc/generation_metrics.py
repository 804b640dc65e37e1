"""The numbers of an output as JSON: the counts are named as vLLM names them."""

from specpair.rpc.messages import drafter_from_proto, rule_from_proto
from specpair.v1 import coordinator_service_pb2 as pb


def generation_metrics(summary: pb.GenerationSummary) -> dict[str, object]:
    """Times, speed, and what speculation did."""
    return {
        "time_to_first_token_us": summary.time_to_first_token_us,
        "total_time_us": summary.total_time_us,
        "tokens_per_second": tokens_per_second(summary),
        "speculative_decoding": _speculative_decoding(summary.speculation),
    }


def tokens_per_second(summary: pb.GenerationSummary) -> float:
    """Output tokens over the whole time of the request; 0 for a request that took none."""
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
    }
