"""Requests as they are served: admission, the checked request, its outputs, and a line in the log for each.

Every front end, gRPC or HTTP, hands in the same message and gets the same ones back, so all have the same limits.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext

from coordinator.admission.admission import Admission
from coordinator.admission.places import QueueLimits
from coordinator.deadline import NEVER, Deadline
from coordinator.metrics import Outcome, OutputSample
from coordinator.outputs.choices import Choices
from coordinator.outputs.generation import Generation
from coordinator.pair import Pair
from coordinator.peers import score_prompt
from coordinator.requests.logprob_limit import within_logprob_limit
from coordinator.requests.request import RequestReader
from coordinator.serving.draining import Draining
from coordinator.serving.responses import choice_response, generation_summary, prompt_responses
from specpair.errors import SpecpairError
from specpair.server.identity import client_name
from specpair.tracing import Span, continued, span
from specpair.v1 import coordinator_service_pb2 as pb

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Of all requests that wait."""
ENDING_SECONDS = 1.0
"""What requests have to end when the grace time is over."""

logger = logging.getLogger(__name__)


class Serving:
    """Serves one pair to all front ends."""

    def __init__(self, pair: Pair):
        self.pair = pair
        self.request_count = 0
        """Requests running now."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = Draining()
        config = pair.config
        limits = QueueLimits(
            max_requests=config.max_queued_requests,
            max_bytes=MAX_QUEUED_BYTES,
            max_outputs_per_client=config.max_requests_per_client,
        )
        self.admission = Admission(lambda: self.output_limit, limits, config.max_queue_wait, pair.metrics.queue)
        pair.metrics.requests.watch_running(lambda: self.request_count)

    @property
    def request_limit(self) -> int:
        """Outputs that one request may want."""
        return min(self.output_limit, self.pair.config.max_requests_per_client or self.output_limit)

    @property
    def output_limit(self) -> int:
        """Outputs that may be generated at once."""
        return min(self.pair.config.max_requests, self.pair.target.info.max_num_seqs)

    @asynccontextmanager
    async def admit(self, requests: Sequence[pb.GenerateTokensRequest]) -> AsyncIterator[None]:
        """Places for all of these requests together, or for none: inside, each is generated with `is_admitted`.

        Raises InvalidFieldError, and what Admission.enter does. Requests that are refused count as failed.
        """
        arrival = time.perf_counter()
        async with AsyncExitStack() as stack:
            with self._counted_unless_admitted(len(requests), arrival):
                await stack.enter_async_context(self._enter(requests))
            yield

    async def generate(
        self,
        request: pb.GenerateTokensRequest,
        arrival: float | None = None,
        request_id: str | None = None,
        trace_context: str = "",
        deadline: Deadline = NEVER,
        shares: int = 1,
        passed_over: list[pb.GenerationSummary] | None = None,
        is_admitted: bool = False,
    ) -> AsyncGenerator[pb.GenerateTokensResponse, None]:
        """What CoordinatorService.GenerateTokens answers. To be closed, as with aclosing: that ends all work on it.

        `arrival` is the time.perf_counter at which the request came in, now if None; `request_id` names it in the log;
        `trace_context` is the traceparent of its client, and `deadline` until when that wants to have the answer;
        `shares` is the number of requests that are answered in one piece, this one included; `passed_over` gets the
        numbers of outputs that best_of did not choose; `is_admitted` says that the request has its places, by `admit`.
        Raises SpecpairError.
        """
        arrival = time.perf_counter() if arrival is None else arrival
        target = self.pair.target
        with (
            continued(trace_context),
            span("request", "server") as traced,
            self._accounts(arrival, request_id, traced) as outputs,
        ):
            async with self._running(request, outputs, is_admitted, deadline):
                checked = within_logprob_limit(
                    await self._reader().read(request), has_max_tokens=request.HasField("max_tokens"), shares=shares
                )
                choices = Choices(checked, self.pair, arrival, deadline)
                outputs += choices.generations
                self.pair.metrics.requests.add_prompt(len(checked.prompt_ids))
                scoring = score_prompt(
                    target, checked.prompt_ids, checked.prompt_logprobs, self.pair.config.target_timeout, deadline
                )
                scores = await self._draining.unless_over(scoring)
                for response in prompt_responses(checked, scores, target.tokenizer):
                    yield response
                async with aclosing(choices.parts()) as parts:
                    while (item := await self._draining.unless_over(anext(parts, None))) is not None:
                        yield choice_response(item, target.tokenizer)
                if passed_over is not None:
                    passed_over += map(generation_summary, choices.passed_over)

    async def drain(self, within: float) -> None:
        """Takes no requests any more, refuses those that wait, and lets the running ones end, for `within` seconds.

        Then the rest ends with ShuttingDownError, behind all tokens that were ready: their clients may resume them.
        """
        self.admission.close()
        logger.info("stopping: running requests have %g s to end", within, extra={"requests": self.request_count})
        if not await self._is_idle(within):
            logger.warning("requests that outlast the grace time: %d", self.request_count)
            self._draining.end()
            await self._is_idle(ENDING_SECONDS)

    async def _is_idle(self, within: float) -> bool:
        """Whether the last request has ended within that time."""
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _reader(self) -> RequestReader:
        target = self.pair.target
        draft = None if self.pair.draft is None else self.pair.draft.info
        return RequestReader(config=self.pair.config, target=target.info, tokenizer=target.tokenizer, draft=draft)

    @asynccontextmanager
    async def _enter(
        self, requests: Sequence[pb.GenerateTokensRequest], deadline: Deadline = NEVER
    ) -> AsyncIterator[None]:
        """The places of these requests, before anything else is done for them."""
        reader = self._reader()
        output_count = sum(reader.output_count(request).best_of for request in requests)
        byte_count = sum(request.ByteSize() for request in requests)
        client = client_name()
        async with self.admission.enter(output_count, client=client, byte_count=byte_count, deadline=deadline):
            yield

    @asynccontextmanager
    async def _running(
        self, request: pb.GenerateTokensRequest, outputs: Sequence[Generation], is_admitted: bool, deadline: Deadline
    ) -> AsyncIterator[None]:
        """The request runs, with its places. Each is kept until draft and target have theirs back, too."""
        async with nullcontext() if is_admitted else self._enter([request], deadline):
            self.request_count += 1
            self._idle.clear()
            try:
                yield
            finally:
                self.request_count -= 1
                if not self.request_count:
                    self._idle.set()
                for output in outputs:
                    if output.closing is not None:
                        self.admission.keep_until(output.closing, client=client_name())

    @contextmanager
    def _counted_unless_admitted(self, request_count: int, arrival: float) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            outcome = Outcome.FAILED if isinstance(error, Exception) else Outcome.CANCELLED
            for _ in range(request_count):
                self.pair.metrics.requests.add_request(outcome, time.perf_counter() - arrival)
            raise

    @contextmanager
    def _accounts(self, arrival: float, request_id: str | None, traced: Span) -> Iterator[list[Generation]]:
        """Counts the request, and the outputs that are put into the list, with a line in the log for each.

        However it ends: finished, failed, or left by its client. Without an id it is named by its first sequence.
        """
        generations: list[Generation] = []
        outcome, reason = Outcome.CANCELLED, ""
        try:
            yield generations
            outcome = Outcome.FINISHED
        except Exception as error:
            outcome, reason = Outcome.FAILED, f" ({error.reason})" if isinstance(error, SpecpairError) else ""
            raise
        finally:
            if outcome == Outcome.CANCELLED and _are_complete(generations):
                outcome = Outcome.FINISHED  # its client left when it had all, before the end of the call
            traced.set(outcome=outcome, **_totals(generations))
            metrics = self.pair.metrics.requests
            metrics.add_request(outcome, time.perf_counter() - arrival)
            for index, generation in enumerate(generations):
                metrics.add_output(_sample(generation))
                request = request_id or generations[0].sequence_id[:8]
                _log_output(outcome + reason, request, index, generation)


def _are_complete(generations: list[Generation]) -> bool:
    """Whether everything was generated, and there was something to generate."""
    return bool(generations) and all(one.request.max_tokens and one.output.finish_reason for one in generations)


def _totals(generations: list[Generation]) -> dict[str, int]:
    return {
        "outputs": len(generations),
        "completion_tokens": sum(generation.output.new_token_count for generation in generations),
        "proposed": sum(generation.acceptance.draft_token_count for generation in generations),
        "accepted": sum(generation.acceptance.accepted_token_count for generation in generations),
    }


def _log_output(outcome: str, request: str, index: int, generation: Generation) -> None:
    logger.info("request %s", outcome, extra={"request": request, "output": index, **_numbers(generation)})


def _sample(generation: Generation) -> OutputSample:
    acceptance = generation.acceptance
    return OutputSample(
        drafter=generation.proposals.asked_drafter,
        rule=generation.request.rule,
        finish_reason=generation.output.finish_reason,
        draft_token_count=acceptance.draft_token_count,
        acceptance_rate=acceptance.acceptance_rate,
        tokens_per_round=acceptance.tokens_per_round(generation.output.new_token_count),
    )


def _numbers(generation: Generation) -> dict[str, object]:
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
