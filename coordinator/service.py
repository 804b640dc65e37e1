"""CoordinatorService over gRPC."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc.aio

from coordinator.adaptive import Worth
from coordinator.deadline import NEVER, Deadline
from coordinator.peers import Pool
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from specpair.errors import SpecpairError
from specpair.options import FROM_TEXT
from specpair.rpc.messages import merge_to_proto, model_info_to_proto, rule_to_proto, sampling_defaults_to_proto
from specpair.speculation.beams.beam_options import MAX_BEAMS
from specpair.tracing import trace_context_of
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceServicer
from specpair.v1.sequence_service_pb2 import GetModelInfoResponse
from specpair.version import package_version

INFO_TIMEOUT = 2.0
DEADLINE_MARGIN = 0.2
"""Seconds reserved for sending the last message to the client; for short deadlines, a share of the remaining time."""
DEADLINE_MARGIN_SHARE = 0.2
ROUNDED_UP = 0.01
"""Most by which gRPC rounds up the time that a client gives, on the way: 100 s may arrive as 101 s."""


class CoordinatorServicer(CoordinatorServiceServicer):
    """Serves one pair."""

    def __init__(self, serving: Serving):
        self._serving = serving

    def GenerateTokens(
        self, request: pb.GenerateTokensRequest, context: grpc.aio.ServicerContext
    ) -> AsyncGenerator[pb.GenerateTokensResponse, None]:
        trace_context = trace_context_of(context.invocation_metadata())
        call = Call(request=request, trace_context=trace_context, deadline=_deadline(context))
        return self._serving.generate(call)

    async def GetPairInfo(
        self, request: pb.GetPairInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetPairInfoResponse:
        return await pair_info(self._serving)


def _deadline(context: grpc.aio.ServicerContext) -> Deadline:
    """When the request has to end, so that its client gets the error before its own deadline."""
    remaining = context.time_remaining()
    if remaining is None:
        return NEVER
    given = remaining / (1 + ROUNDED_UP)
    return Deadline.after(given - min(DEADLINE_MARGIN, DEADLINE_MARGIN_SHARE * given))


async def pair_info(serving: Serving) -> pb.GetPairInfoResponse:
    """The pair with its limits. A service that cannot be reached is left out."""
    pair = serving.pair
    draft, target, *others = await asyncio.gather(*map(_describe, (pair.draft, pair.target, *pair.drafts.values())))
    names = pair.drafts if pair.config.drafts.is_named else ()
    return pb.GetPairInfoResponse(
        draft=draft,
        target=target,
        version=package_version(),
        num_speculative_tokens=pair.config.num_speculative_tokens,
        max_num_speculative_tokens=pair.config.max_num_speculative_tokens,
        request_count=serving.request_count,
        proposal_worth=_worth(pair.worth()),
        drafts=[
            *(pb.NamedDraft(name=name, draft=own) for name, own in zip(names, others, strict=False)),
            *(pb.NamedDraft(name=name) for name in pair.config.drafts.names if name in FROM_TEXT),
        ],
        merge=merge_to_proto(pair.config.merge if pair.config.drafts.is_named else None),
        has_draft_service=pair.draft is not None,
        rule=rule_to_proto(pair.config.rule),
        sampling_defaults=sampling_defaults_to_proto(pair.target.sampling_defaults),
        max_num_beams=min(MAX_BEAMS, serving.request_limit) if pair.target.info.runs_beams else 0,
    )


def _worth(worth: Worth | None) -> pb.ProposalWorth | None:
    if worth is None:
        return None
    return pb.ProposalWorth(
        output_count=worth.output_count,
        break_even_acceptance=worth.break_even,
        acceptance=worth.acceptance,
        best_num_speculative_tokens=worth.best_length,
        gain=worth.gain,
    )


async def _describe(pool: Pool[Any] | None) -> GetModelInfoResponse | None:
    """Model information from the first instance that can be reached; None if there is none."""
    deadline = Deadline.after(INFO_TIMEOUT)
    for link in () if pool is None else sorted(pool.links.values(), key=lambda link: not link.is_there):
        try:
            return model_info_to_proto(await link.peer.info(deadline.at_most(INFO_TIMEOUT)))
        except SpecpairError:
            continue
    return None
