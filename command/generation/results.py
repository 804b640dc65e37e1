"""A finished generation for people (a line for each output) and programs (one JSON document)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from specpair.rpc.generation_metrics import generation_metrics, tokens_per_second
from specpair.rpc.messages import drafter_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

_FINISH_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


@dataclass
class Choice:
    """One output."""

    text: list[str] = field(default_factory=list)
    """Its pieces."""
    tokens: list[pb.GeneratedToken] = field(default_factory=list)
    summary: pb.GenerationSummary | None = None


class Completion:
    """All responses to a request, put together."""

    def __init__(self, n: int):
        self.choices = [Choice() for _ in range(n)]
        self.prompt_tokens: list[pb.GeneratedToken] = []

    @property
    def n(self) -> int:
        return len(self.choices)

    @property
    def is_finished(self) -> bool:
        """Whether all outputs have come to their end."""
        return all(choice.summary is not None for choice in self.choices)

    def add(self, response: pb.GenerateTokensResponse) -> None:
        choice = self.choices[response.choice_index]
        choice.text.append(response.text)
        choice.tokens.extend(response.tokens)
        self.prompt_tokens.extend(response.prompt_tokens)
        if response.HasField("summary"):
            choice.summary = response.summary


def summary_line(summary: pb.GenerationSummary) -> str:
    """Speed, acceptance and seed; a lossy output is named first."""
    seconds = summary.total_time_us / 1e6
    speculation = summary.speculation
    parts = [f"LOSSY: lenience {speculation.lenience:g}"] if speculation.lossy else []
    if summary.resumed_token_count:
        parts.append(f"coordinator lost, resumed after {summary.resumed_token_count} tokens: since then")
    parts += [
        f"{summary.completion_token_count} tokens in {seconds:.2f} s",
        f"{tokens_per_second(summary):.1f} tokens/s",
        f"first token after {summary.time_to_first_token_us / 1000:.1f} ms",
    ]
    if summary.cached_prompt_token_count:
        parts.append(f"{summary.cached_prompt_token_count} of {summary.prompt_token_count} prompt tokens cached")
    if speculation.draft_token_count:
        accepted = f"{speculation.accepted_token_count} of {speculation.draft_token_count}"
        parts.append(f"acceptance rate {speculation.acceptance_rate:.1%} ({accepted})")
    elif speculation.adaptive and speculation.round_count > speculation.fallback_count and not _is_short(summary):
        parts.append("no tokens proposed: adaptive K found that they would not pay")
    if speculation.draft_token_count and (drafter := drafter_from_proto(speculation.drafter)):
        parts.append(f"drafter {drafter}")
    parts += [f"{own.name} {own.accepted_token_count} of {own.draft_token_count}" for own in speculation.drafts]
    if speculation.round_count:
        parts.append(f"{speculation.tokens_per_round:.2f} tokens per round")
    if speculation.fallback_count:
        parts.append(f"{speculation.fallback_count} of {speculation.round_count} rounds without the draft")
    if summary.HasField("beam_score"):
        parts.append(f"beam score {summary.beam_score:.3f}")
    if summary.HasField("cumulative_logprob") and summary.completion_token_count:
        parts.append(f"mean logprob {summary.cumulative_logprob / summary.completion_token_count:.3f}")
    return " · ".join([*parts, f"seed {summary.seed}"])


def _is_short(summary: pb.GenerationSummary) -> bool:
    """Whether max_tokens left no room for proposals: the first token comes with the prompt, the last with a verdict."""
    return summary.finish_reason == pb.FINISH_REASON_LENGTH and summary.completion_token_count <= 2


def json_document(completion: Completion) -> str:
    """The finished completion with its usage and metrics; counts have the names that vLLM gives them."""
    summaries = [choice.summary for choice in completion.choices if choice.summary is not None]
    prompt = summaries[0].encoder_token_count + summaries[0].prompt_token_count
    generated = sum(summary.resumed_token_count + summary.completion_token_count for summary in summaries)
    document: dict[str, object] = {
        "choices": [
            _choice_document(index, choice, summary)
            for index, (choice, summary) in enumerate(zip(completion.choices, summaries, strict=True))
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": summaries[0].cached_prompt_token_count},
        },
    }
    if completion.prompt_tokens:
        document["prompt"] = _tokens(completion.prompt_tokens)
    return json.dumps(document, ensure_ascii=False, indent=2)


def _choice_document(index: int, choice: Choice, summary: pb.GenerationSummary) -> dict[str, object]:
    document: dict[str, object] = {
        "index": index,
        "text": "".join(choice.text),
        **_tokens(choice.tokens),
        "finish_reason": _FINISH_REASONS.get(summary.finish_reason),
        "seed": summary.seed,
        "metrics": generation_metrics(summary),
    }
    if summary.HasField("beam_score"):
        document["beam_score"] = summary.beam_score
    if summary.HasField("cumulative_logprob"):
        document["cumulative_logprob"] = summary.cumulative_logprob
    return document


def _tokens(tokens: Sequence[pb.GeneratedToken]) -> dict[str, object]:
    """The ids and, if there are any, the logprobs: null for the first token of a prompt."""
    document: dict[str, object] = {"token_ids": [token.id for token in tokens]}
    if any(token.HasField("logprobs") for token in tokens):
        document["logprobs"] = [_logprobs(token) for token in tokens]
    return document


def _logprobs(token: pb.GeneratedToken) -> dict[str, object] | None:
    if not token.HasField("logprobs"):
        return None
    entry = token.logprobs
    top = [
        {"token_id": token_id, "logprob": logprob}
        for token_id, logprob in zip(entry.top_token_ids, entry.top_logprobs, strict=True)
    ]
    return {"token": token.text, "token_id": token.id, "logprob": entry.logprob, "top_logprobs": top}
