"""Serves requests: admission, checks, generation of the outputs, and a log line for each output.

All front ends, gRPC and HTTP, pass in the same message and get the same ones back, so all have the same limits.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext

from coordinator.admission.admission import Admission
from coordinator.admission.places import QueueLimits
from coordinator.deadline import NEVER, Deadline
from coordinator.metrics import Outcome
from coordinator.outputs.beam_outputs import BeamOutputs
from coordinator.outputs.choices import Choices
from coordinator.outputs.counted_output import CountedOutput
from coordinator.pair import Pair
from coordinator.peers import score_prompt
from coordinator.requests.logprob_limit import within_logprob_limit
from coordinator.requests.request import RequestReader
from coordinator.serving.accounts import accounts
from coordinator.serving.call import Call
from coordinator.serving.draining import Draining
from coordinator.serving.responses import choice_response, generation_summary, prompt_responses
from specpair.server.identity import client_name
from specpair.tracing import continued, span
from specpair.v1 import coordinator_service_pb2 as pb

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Largest size of all waiting requests together."""
ENDING_SECONDS = 1.0
"""Seconds that requests have to end after the grace time."""

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
        pair.target.news.listen(self.admission.advance)  # a target that comes back has places
        pair.metrics.requests.watch_running(lambda: self.request_count)

    @property
    def request_limit(self) -> int:
        """Outputs that one request may ask for."""
        return min(self.output_limit, self.pair.config.max_requests_per_client or self.output_limit)

    @property
    def output_limit(self) -> int:
        """Outputs that may be generated at once."""
        return min(self.pair.config.max_requests, self.pair.target.info.max_num_seqs)

    @asynccontextmanager
    async def admit(self, requests: Sequence[pb.GenerateTokensRequest]) -> AsyncIterator[None]:
        """Holds places for all of these requests together. Calls made inside have to set `is_admitted`.

        Raises InvalidFieldError, and what Admission.enter does. Requests that are refused count as failed.
        """
        arrival = time.perf_counter()
        async with AsyncExitStack() as stack:
            with self._counted_unless_admitted(len(requests), arrival):
                await stack.enter_async_context(self._enter(requests))
            yield

    async def generate(self, call: Call) -> AsyncGenerator[pb.GenerateTokensResponse, None]:
        """The answer of CoordinatorService.GenerateTokens. Closing it, as aclosing does, ends all work on the request.

        Raises SpecpairError.
        """
        request, target = call.request, self.pair.target
        with (
            continued(call.trace_context),
            span("request", "server") as traced,
            accounts(call, self.pair.metrics.requests, traced) as outputs,
        ):
            async with self._running(call, outputs):
                checked = within_logprob_limit(
                    await self._reader().read(request, reasoning=call.reasoning, shown=call.shown),
                    has_max_tokens=request.HasField("max_tokens"),
                    shares=call.shares,
                )
                outputs_of = Choices if checked.beams is None else BeamOutputs
                choices = outputs_of(checked, self.pair, call.arrival, call.deadline)
                outputs += choices.generations
                self.pair.metrics.requests.add_prompt(len(checked.encoder_ids) + len(checked.prompt_ids))
                scoring = score_prompt(
                    target, checked.prompt_ids, checked.prompt_logprobs, self.pair.config.target_timeout, call.deadline
                )
                scores = await self._draining.unless_over(scoring)
                for response in prompt_responses(checked, scores, target.tokenizer):
                    yield response
                async with aclosing(choices.parts()) as parts:
                    while (item := await self._draining.unless_over(anext(parts, None))) is not None:
                        yield choice_response(item, target.tokenizer)
                call.passed_over.extend(map(generation_summary, choices.passed_over))

    async def drain(self, within: float) -> None:
        """Refuses new and waiting requests and gives the running ones `within` seconds to end.

        Then the rest end with ShuttingDownError, after all tokens that were ready: their clients may resume them.
        """
        self.admission.close()
        logger.info("stopping: running requests have %g s to end", within, extra={"requests": self.request_count})
        if not await self._is_idle(within):
            logger.warning("requests still running after the grace time: %d", self.request_count)
            self._draining.end()
            await self._is_idle(ENDING_SECONDS)

    async def _is_idle(self, within: float) -> bool:
        """Waits for the last request to end; whether it did within `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _reader(self) -> RequestReader:
        target = self.pair.target
        draft = None if self.pair.draft is None else self.pair.draft.info
        return RequestReader(
            config=self.pair.config,
            target=target.info,
            tokenizer=target.tokenizer,
            draft=draft,
            structures=self.pair.structures,
            drafts={name: own.info for name, own in self.pair.drafts.items()},
            defaults=target.sampling_defaults,
        )

    @asynccontextmanager
    async def _enter(
        self, requests: Sequence[pb.GenerateTokensRequest], deadline: Deadline = NEVER
    ) -> AsyncIterator[None]:
        """Holds the places of these requests, before any other work for them."""
        reader = self._reader()
        output_count = sum(reader.output_count(request).best_of for request in requests)
        byte_count = sum(request.ByteSize() for request in requests)
        client = client_name()
        async with self.admission.enter(output_count, client=client, byte_count=byte_count, deadline=deadline):
            yield

    @asynccontextmanager
    async def _running(self, call: Call, outputs: Sequence[CountedOutput]) -> AsyncIterator[None]:
        """Runs the request. Its places are kept until the sequences of its outputs at draft and target are closed."""
        async with nullcontext() if call.is_admitted else self._enter([call.request], call.deadline):
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
