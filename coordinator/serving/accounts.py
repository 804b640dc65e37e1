"""Accounting of requests: outcome and outputs for the metrics, and a log line for each output."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.metrics import Outcome, OutputSample
from coordinator.metrics.request_metrics import RequestMetrics
from coordinator.outputs.counted_output import CountedOutput
from coordinator.serving.call import Call
from specpair.errors import SpecpairError
from specpair.tracing import Span

logger = logging.getLogger(__name__)


@contextmanager
def accounts(call: Call, metrics: RequestMetrics, traced: Span) -> Iterator[list[CountedOutput]]:
    """Counts the request and the outputs that are put into the list, with a log line for each output.

    It counts finished, failed and cancelled requests. The log names a request without an id by its first sequence.
    """
    generations: list[CountedOutput] = []
    outcome, reason = Outcome.CANCELLED, ""
    try:
        yield generations
        outcome = Outcome.FINISHED
    except Exception as error:
        outcome, reason = Outcome.FAILED, f" ({error.reason})" if isinstance(error, SpecpairError) else ""
        raise
    finally:
        if outcome == Outcome.CANCELLED and _are_complete(generations):
            outcome = Outcome.FINISHED  # the client disconnected after the last token, before the end of the call
        traced.set(outcome=outcome, **_totals(generations))
        metrics.add_request(outcome, time.perf_counter() - call.arrival)
        for index, generation in enumerate(generations):
            metrics.add_output(_sample(generation))
            request = call.request_id or generations[0].sequence_id[:8]
            _log_output(outcome + reason, request, index, generation)


def _are_complete(generations: list[CountedOutput]) -> bool:
    """Whether there are outputs to generate and all are finished."""
    return bool(generations) and all(one.request.max_tokens and one.output.finish_reason for one in generations)


def _totals(generations: list[CountedOutput]) -> dict[str, int]:
    return {
        "outputs": len(generations),
        "completion_tokens": sum(generation.output.new_token_count for generation in generations),
        "proposed": sum(generation.acceptance.draft_token_count for generation in generations),
        "accepted": sum(generation.acceptance.accepted_token_count for generation in generations),
    }


def _log_output(outcome: str, request: str, index: int, generation: CountedOutput) -> None:
    logger.info("request %s", outcome, extra={"request": request, "output": index, **_numbers(generation)})


def _sample(generation: CountedOutput) -> OutputSample:
    acceptance, structured = generation.acceptance, generation.request.structured_output
    is_beam = generation.request.beams is not None  # no rule judges its tokens: searches have metrics of their own
    return OutputSample(
        drafter=generation.proposals.asked_drafter,
        rule=generation.request.rule,
        finish_reason=generation.output.finish_reason,
        draft_token_count=0 if is_beam else acceptance.draft_token_count,
        acceptance_rate=acceptance.acceptance_rate,
        tokens_per_round=acceptance.tokens_per_round(generation.output.new_token_count),
        structure=None if structured is None else structured.kind,
    )


def _numbers(generation: CountedOutput) -> dict[str, object]:
    acceptance = generation.acceptance
    completion_token_count = generation.output.new_token_count
    return {
        "finish_reason": generation.output.finish_reason,
        "completion_tokens": completion_token_count,
        "rounds": acceptance.round_count,
        "acceptance_rate": round(acceptance.acceptance_rate, 3),
        "tokens_per_round": round(acceptance.tokens_per_round(completion_token_count), 2),
        "fallbacks": acceptance.fallback_count,
        "ttft_ms": round(generation.time_to_first_token * 1e3, 1),
        "total_ms": round(generation.total_time * 1e3, 1),
        "draft_ms": round(acceptance.draft_time * 1e3, 1),
        "verify_ms": round(acceptance.verify_time * 1e3, 1),
        "network_ms": round(acceptance.network_time * 1e3, 1),
    }
