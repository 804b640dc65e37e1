"""CoordinatorService: decodes requests, runs them, encodes what comes out."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import grpc.aio

from coordinator.choices import Choices
from coordinator.generation import Generation
from coordinator.pair import Pair
from coordinator.peer import ModelPeer
from coordinator.request import RequestReader
from coordinator.responses import choice_response, prompt_responses
from coordinator.scoring import score_prompt
from specpair.errors import CapacityExhaustedError, SpecpairError
from specpair.rpc.messages import model_info_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceServicer
from specpair.v1.sequence_service_pb2 import GetModelInfoResponse
from specpair.version import package_version

INFO_TIMEOUT = 2.0

logger = logging.getLogger(__name__)


class CoordinatorServicer(CoordinatorServiceServicer):
    """Serves one pair."""

    def __init__(self, pair: Pair):
        self._pair = pair
        self._request_count = 0
        self._output_count = 0

    async def GenerateTokens(
        self, request: pb.GenerateTokensRequest, context: grpc.aio.ServicerContext
    ) -> AsyncGenerator[pb.GenerateTokensResponse, None]:
        arrival = time.perf_counter()
        target = self._pair.target
        draft = None if self._pair.draft is None else self._pair.draft.info
        reader = RequestReader(config=self._pair.config, target=target.info, tokenizer=target.tokenizer, draft=draft)
        with self._admission(reader.output_count(request).best_of):
            checked = await reader.read(request)
            choices = Choices(checked, self._pair, arrival)
            with _log_outcomes(choices):
                for response in prompt_responses(checked, await score_prompt(checked, self._pair), target.tokenizer):
                    yield response
                async with aclosing(choices.rounds()) as rounds:
                    async for item in rounds:
                        yield choice_response(item, target.tokenizer)

    async def GetPairInfo(
        self, request: pb.GetPairInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetPairInfoResponse:
        draft_peer = None if self._pair.draft is None else self._pair.draft.peer
        draft, target = await asyncio.gather(_describe(draft_peer), _describe(self._pair.target.peer))
        return pb.GetPairInfoResponse(
            draft=draft,
            target=target,
            version=package_version(),
            num_speculative_tokens=self._pair.config.num_speculative_tokens,
            max_num_speculative_tokens=self._pair.config.max_num_speculative_tokens,
            request_count=self._request_count,
        )

    @contextmanager
    def _admission(self, output_count: int) -> Iterator[None]:
        """Places among the running outputs, taken before any work is done."""
        limit = min(self._pair.config.max_requests, self._pair.target.info.max_num_seqs)
        if self._output_count + output_count > limit:
            message = f"the request wants {output_count} of {limit} places; {self._output_count} are taken"
            raise CapacityExhaustedError(message, limit=limit)
        self._request_count += 1
        self._output_count += output_count
        try:
            yield
        finally:
            self._request_count -= 1
            self._output_count -= output_count


@contextmanager
def _log_outcomes(choices: Choices) -> Iterator[None]:
    """A line for each output, with its numbers, also when the request fails or its client goes away."""
    outcome = "cancelled"
    try:
        yield
        outcome = "finished"
    except SpecpairError as error:
        outcome = f"failed ({error.reason})"
        raise
    finally:
        request = choices.generations[0].sequence_id[:8]
        for index, generation in enumerate(choices.generations):
            logger.info("request %s", outcome, extra={"request": request, "output": index, **_numbers(generation)})


def _numbers(generation: Generation) -> dict[str, object]:
    acceptance = generation.acceptance
    completion_token_count = len(generation.output.token_ids)
    return {
        "finish_reason": generation.output.finish_reason,
        "completion_tokens": completion_token_count,
        "rounds": acceptance.round_count,
        "acceptance_rate": round(acceptance.acceptance_rate, 3),
        "tokens_per_round": round(acceptance.tokens_per_round(completion_token_count), 2),
        "fallbacks": acceptance.fallback_count,
        "ttft_ms": round(generation.time_to_first_token_us / 1000, 1),
        "total_ms": round(generation.total_time_us / 1000, 1),
        "draft_ms": round(acceptance.draft_time_us / 1000, 1),
        "verify_ms": round(acceptance.verify_time_us / 1000, 1),
        "network_ms": round(acceptance.network_time_us / 1000, 1),
    }


async def _describe(peer: ModelPeer | None) -> GetModelInfoResponse | None:
    """A service's own words; None if it cannot be reached."""
    if peer is None:
        return None
    try:
        return model_info_to_proto(await peer.info(INFO_TIMEOUT))
    except SpecpairError:
        return None
