"""What the coordinator answers, as messages."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.choices import ChoiceRound
from coordinator.outputs.generation import Generation, Origin, Round
from coordinator.outputs.round_report import CallTimes, RoundReport
from coordinator.requests.finish_reason import FinishReason
from coordinator.requests.request import GenerationRequest
from coordinator.requests.tokenizer import Tokenizer
from specpair.rpc.messages import drafter_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.logprobs_pb2 import TokenLogprobs

PROMPT_TOKENS_PER_MESSAGE = 1024
_ORIGINS = {
    Origin.ACCEPTED: pb.TOKEN_ORIGIN_ACCEPTED,
    Origin.CORRECTION: pb.TOKEN_ORIGIN_CORRECTION,
    Origin.BONUS: pb.TOKEN_ORIGIN_BONUS,
    Origin.TARGET: pb.TOKEN_ORIGIN_TARGET,
}
_FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


def choice_response(item: ChoiceRound, tokenizer: Tokenizer | None) -> pb.GenerateTokensResponse:
    """What one round of one output committed, with the output's numbers if it is the last."""
    response = _round_response(item.round, item.generation.request, tokenizer)
    response.choice_index = item.choice_index
    if item.round.is_last:
        response.summary.CopyFrom(generation_summary(item.generation))
    return response


def prompt_responses(
    request: GenerationRequest, scores: Sequence[TokenLogprobs], tokenizer: Tokenizer | None
) -> Iterator[pb.GenerateTokensResponse]:
    """The tokens of the prompt, if they are wanted, in messages of a size that any client takes.

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


def _round_response(
    round_: Round, request: GenerationRequest, tokenizer: Tokenizer | None
) -> pb.GenerateTokensResponse:
    response = pb.GenerateTokensResponse(text=round_.text)
    for token_id, origin in zip(round_.token_ids, round_.origins, strict=True):
        response.tokens.add(id=token_id, text=_token_text(token_id, tokenizer), origin=_ORIGINS[origin])
    if request.logprobs is not None:
        for token, logprobs in zip(response.tokens, round_.logprobs, strict=True):
            token.logprobs.CopyFrom(logprobs)
    if request.include_rejected:
        for token_id in round_.rejected_ids:
            text = _token_text(token_id, tokenizer)
            response.rejected.add(id=token_id, text=text, origin=pb.TOKEN_ORIGIN_REJECTED)
    if round_.report is not None:
        response.round.CopyFrom(_round_report(round_.report, tokenizer))
    return response


def _round_report(report: RoundReport, tokenizer: Tokenizer | None) -> pb.RoundReport:
    message = pb.RoundReport(
        step=report.step,
        draft=None if report.draft is None else _call_times(report.draft),
        verify=_call_times(report.verify),
        batch_token_count=report.batch_token_count,
    )
    for i, token_id in enumerate(report.token_ids):
        message.proposed.add(
            id=token_id,
            text=_token_text(token_id, tokenizer),
            accepted=i < report.accepted_count,
            target_probability=_at(report.target_probabilities, i),
            draft_probability=_at(report.draft_probabilities, i),
        )
    return message


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) else None


def _call_times(times: CallTimes) -> pb.CallTimes:
    return pb.CallTimes(start_us=times.start, elapsed_us=times.elapsed, queue_us=times.queue, compute_us=times.compute)


def generation_summary(generation: Generation) -> pb.GenerationSummary:
    """The numbers of a finished output."""
    assert generation.output.finish_reason is not None
    completion_token_count = generation.output.new_token_count
    return pb.GenerationSummary(
        finish_reason=_FINISH_REASONS[generation.output.finish_reason],
        prompt_token_count=len(generation.request.prompt_ids),
        completion_token_count=completion_token_count,
        seed=generation.request.sampling.seed,
        speculation=_speculation_summary(generation, completion_token_count),
        time_to_first_token_us=generation.time_to_first_token_us,
        total_time_us=generation.total_time_us,
        cumulative_logprob=generation.cumulative_logprob if generation.has_logprobs else None,
        resumed_token_count=len(generation.request.resumed_ids),
    )


def _speculation_summary(generation: Generation, completion_token_count: int) -> pb.SpeculationSummary:
    acceptance, request = generation.acceptance, generation.request
    counts = {field.name: getattr(acceptance, field.name) for field in fields(Acceptance)}
    return pb.SpeculationSummary(
        **counts,
        acceptance_rate=acceptance.acceptance_rate,
        tokens_per_round=acceptance.tokens_per_round(completion_token_count),
        rule=rule_to_proto(request.rule),
        lenience=request.lenience,
        lossy=request.lenience < 1.0,
        adaptive=generation.proposals.is_adaptive,
        drafter=drafter_to_proto(generation.proposals.drafter),
    )


def _token_text(token_id: int, tokenizer: Tokenizer | None) -> str:
    return "" if tokenizer is None else tokenizer.token_text(token_id)
