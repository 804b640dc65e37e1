"""The coordinator's answers as protobuf messages."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.choices import ChoicePart
from coordinator.outputs.counted_output import CountedOutput
from coordinator.outputs.output_part import Origin, OutputPart
from coordinator.outputs.round_report import RoundReport
from coordinator.peers import CallTimes
from coordinator.requests.finish_reason import FinishReason
from coordinator.requests.request import GenerationRequest
from coordinator.requests.tokenizer import Tokenizer
from specpair.rpc.messages import drafter_to_proto, drawing_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.logprobs_pb2 import TokenLogprobs

Number = TypeVar("Number", int, float)
PROMPT_TOKENS_PER_MESSAGE = 1024
_ORIGINS = {
    Origin.ACCEPTED: pb.TOKEN_ORIGIN_ACCEPTED,
    Origin.CORRECTION: pb.TOKEN_ORIGIN_CORRECTION,
    Origin.BONUS: pb.TOKEN_ORIGIN_BONUS,
    Origin.TARGET: pb.TOKEN_ORIGIN_TARGET,
    Origin.FORCED: pb.TOKEN_ORIGIN_FORCED,
}
_AHEAD = {
    None: pb.AHEAD_OUTCOME_UNSPECIFIED,
    AheadOutcome.HIT: pb.AHEAD_OUTCOME_HIT,
    AheadOutcome.LATE: pb.AHEAD_OUTCOME_LATE,
    AheadOutcome.MISS: pb.AHEAD_OUTCOME_MISS,
    AheadOutcome.PLAIN: pb.AHEAD_OUTCOME_PLAIN,
}
_FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


def choice_response(item: ChoicePart, tokenizer: Tokenizer | None) -> pb.GenerateTokensResponse:
    """The message for one part of one output, with the output's summary if it is the last."""
    response = _part_response(item.part, item.generation.request, tokenizer)
    response.choice_index = item.choice_index
    if item.part.is_last:
        response.summary.CopyFrom(generation_summary(item.generation))
    return response


def prompt_responses(
    request: GenerationRequest, scores: Sequence[TokenLogprobs], tokenizer: Tokenizer | None
) -> Iterator[pb.GenerateTokensResponse]:
    """The tokens of the prompt, if requested, in messages small enough for any client.

    `scores` has an entry for each token but the first, or none at all.
    """
    if not request.wants_prompt:
        return
    entries: list[TokenLogprobs | None] = [None, *scores] if scores else [None] * len(request.prompt_ids)
    for start in range(0, len(request.prompt_ids), PROMPT_TOKENS_PER_MESSAGE):
        response = pb.GenerateTokensResponse()
        piece = slice(start, start + PROMPT_TOKENS_PER_MESSAGE)
        for token_id, entry in zip(request.prompt_ids[piece], entries[piece], strict=True):
            text = _token_text(token_id, tokenizer)
            response.prompt_tokens.add(id=token_id, text=text, origin=pb.TOKEN_ORIGIN_PROMPT, logprobs=entry)
        yield response


def _part_response(
    part: OutputPart, request: GenerationRequest, tokenizer: Tokenizer | None
) -> pb.GenerateTokensResponse:
    response = pb.GenerateTokensResponse(text=part.text)
    for token_id, origin in zip(part.token_ids, part.origins, strict=True):
        response.tokens.add(id=token_id, text=_token_text(token_id, tokenizer), origin=_ORIGINS[origin])
    if request.logprobs is not None:
        for token, logprobs in zip(response.tokens, part.logprobs, strict=True):
            token.logprobs.CopyFrom(logprobs)
    if request.include_rejected:
        for token_id in part.rejected_ids:
            text = _token_text(token_id, tokenizer)
            response.rejected.add(id=token_id, text=text, origin=pb.TOKEN_ORIGIN_REJECTED)
    if part.report is not None:
        response.round.CopyFrom(_round_report(part.report, tokenizer))
    return response


def _round_report(report: RoundReport, tokenizer: Tokenizer | None) -> pb.RoundReport:
    message = pb.RoundReport(
        step=report.step,
        draft=None if report.draft is None else _call_times(report.draft, report.arrival),
        verify=_call_times(report.verify, report.arrival),
        batch_token_count=report.batch_token_count,
        ahead=_AHEAD[report.ahead],
    )
    for i, token_id in enumerate(report.token_ids):
        message.proposed.add(
            id=token_id,
            text=_token_text(token_id, tokenizer),
            accepted=i in report.path,
            target_probability=_at(report.target_probabilities, i),
            draft_probability=_at(report.draft_probabilities, i),
            parent_index=_at(report.parents, i),
            draft_names=[share.name for share in report.shares if i in share.nodes],
        )
    return message


def _at(values: Sequence[Number], index: int) -> Number | None:
    return values[index] if index < len(values) else None


def _call_times(times: CallTimes, arrival: float) -> pb.CallTimes:
    return pb.CallTimes(
        start_us=max(microseconds(times.started_at - arrival), 0),
        elapsed_us=microseconds(times.elapsed),
        queue_us=microseconds(times.queue),
        compute_us=microseconds(times.compute),
    )


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)


def generation_summary(generation: CountedOutput) -> pb.GenerationSummary:
    """The summary of a finished output."""
    assert generation.output.finish_reason is not None
    completion_token_count = generation.output.new_token_count
    return pb.GenerationSummary(
        finish_reason=_FINISH_REASONS[generation.output.finish_reason],
        prompt_token_count=len(generation.request.prompt_ids),
        cached_prompt_token_count=generation.cached_prompt_token_count,
        completion_token_count=completion_token_count,
        seed=generation.request.sampling.seed,
        sampling=drawing_to_proto(generation.request.sampling),
        speculation=_speculation_summary(generation, completion_token_count),
        time_to_first_token_us=microseconds(generation.time_to_first_token),
        total_time_us=microseconds(generation.total_time),
        cumulative_logprob=generation.cumulative_logprob if generation.has_logprobs else None,
        resumed_token_count=len(generation.request.resumed_ids),
        encoder_token_count=len(generation.request.encoder_ids),
        beam_score=generation.beam_score,
    )


def _speculation_summary(generation: CountedOutput, completion_token_count: int) -> pb.SpeculationSummary:
    acceptance, request = generation.acceptance, generation.request
    return pb.SpeculationSummary(
        round_count=acceptance.round_count,
        draft_round_count=acceptance.draft_round_count,
        draft_token_count=acceptance.draft_token_count,
        accepted_token_count=acceptance.accepted_token_count,
        drafted_per_position=acceptance.drafted_per_position,
        accepted_per_position=acceptance.accepted_per_position,
        fallback_count=acceptance.fallback_count,
        draft_time_us=microseconds(acceptance.draft_time),
        verify_time_us=microseconds(acceptance.verify_time),
        network_time_us=microseconds(acceptance.network_time),
        acceptance_rate=acceptance.acceptance_rate,
        tokens_per_round=acceptance.tokens_per_round(completion_token_count),
        rule=rule_to_proto(request.rule),
        lenience=request.lenience,
        lossy=request.lenience < 1.0,
        adaptive=generation.proposals.is_adaptive,
        ahead_hit_count=acceptance.ahead_counts[AheadOutcome.HIT],
        ahead_late_count=acceptance.ahead_counts[AheadOutcome.LATE],
        ahead_miss_count=acceptance.ahead_counts[AheadOutcome.MISS],
        ahead_plain_count=acceptance.ahead_counts[AheadOutcome.PLAIN],
        drafter=drafter_to_proto(generation.proposals.asked_drafter),
        drafts=[pb.DraftSummary(name=name, **asdict(counts)) for name, counts in acceptance.by_draft.items()],
        forced_token_count=acceptance.forced_token_count,
        own_draft=None if acceptance.guesses is None else pb.OwnDraftSummary(**acceptance.guesses._asdict()),
    )


def _token_text(token_id: int, tokenizer: Tokenizer | None) -> str:
    return "" if tokenizer is None else tokenizer.token_text(token_id)
