"""CoordinatorService over gRPC."""

import asyncio
from collections.abc import AsyncGenerator

import grpc.aio

from coordinator.peer import ModelPeer
from coordinator.serving import Serving
from specpair.errors import SpecpairError
from specpair.rpc.messages import model_info_to_proto
from specpair.tracing import trace_context_of
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceServicer
from specpair.v1.sequence_service_pb2 import GetModelInfoResponse
from specpair.version import package_version

INFO_TIMEOUT = 2.0


class CoordinatorServicer(CoordinatorServiceServicer):
    """Serves one pair."""

    def __init__(self, serving: Serving):
        self._serving = serving

    def GenerateTokens(
        self, request: pb.GenerateTokensRequest, context: grpc.aio.ServicerContext
    ) -> AsyncGenerator[pb.GenerateTokensResponse, None]:
        return self._serving.generate(request, trace_context=trace_context_of(context.invocation_metadata()))

    async def GetPairInfo(
        self, request: pb.GetPairInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetPairInfoResponse:
        return await pair_info(self._serving)


async def pair_info(serving: Serving) -> pb.GetPairInfoResponse:
    """The pair with its limits. A service that cannot be reached is left out."""
    pair = serving.pair
    draft, target = await asyncio.gather(_describe(pair.draft and pair.draft.peer), _describe(pair.target.peer))
    return pb.GetPairInfoResponse(
        draft=draft,
        target=target,
        version=package_version(),
        num_speculative_tokens=pair.config.num_speculative_tokens,
        max_num_speculative_tokens=pair.config.max_num_speculative_tokens,
        request_count=serving.request_count,
    )


async def _describe(peer: ModelPeer | None) -> GetModelInfoResponse | None:
    """A service's own words; None if it cannot be reached."""
    if peer is None:
        return None
    try:
        return model_info_to_proto(await peer.info(INFO_TIMEOUT))
    except SpecpairError:
        return None
