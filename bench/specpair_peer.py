"""specpair from the client's side: requests over gRPC, timed at the client."""

import asyncio
import time

from bench.case import Case
from bench.measurement import Counts, Output
from bench.received import Received, output_of
from specpair.options import WorkAhead
from specpair.rpc.messages import drafter_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

WORK_AHEAD_MODES = {
    WorkAhead.AUTO: pb.WORK_AHEAD_MODE_AUTO,
    WorkAhead.ON: pb.WORK_AHEAD_MODE_ON,
    WorkAhead.OFF: pb.WORK_AHEAD_MODE_OFF,
}
TIMEOUT = 600.0
"""Seconds after which a request fails, and with it the run."""


async def generate(
    stub: CoordinatorServiceStub, case: Case, prompts: list[list[int]], max_tokens: int, seed: int
) -> Output:
    """One request for each prompt, all at the same time; the seeds count up from `seed`."""
    started = time.perf_counter()
    requests = [request_for(case, prompt, max_tokens, seed + i) for i, prompt in enumerate(prompts)]
    answers = await asyncio.gather(*(receive(stub, request) for request in requests))
    counts = Counts.total(counts_of(summary.speculation) for _, summary in answers)
    return output_of([received for received, _ in answers], started, counts)


def request_for(case: Case, prompt: list[int], max_tokens: int, seed: int) -> pb.GenerateTokensRequest:
    """The request of a case; K and drafter are unset if the case leaves them to the server."""
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=prompt),
        max_tokens=max_tokens,
        rule=rule_to_proto(case.rule),
        sampling={"temperature": case.temperature, "seed": seed},
        ignore_eos=True,
    )
    if case.num_speculative_tokens is not None:
        request.num_speculative_tokens = case.num_speculative_tokens
    if case.num_tree_tokens is not None:
        request.num_tree_tokens = case.num_tree_tokens
    request.drafts.extend(case.drafts)
    if case.drafter is not None:
        request.drafter = drafter_to_proto(case.drafter)
    if case.work_ahead is not None:
        request.work_ahead = WORK_AHEAD_MODES[case.work_ahead]
    return request


async def receive(
    stub: CoordinatorServiceStub, request: pb.GenerateTokensRequest
) -> tuple[Received, pb.GenerationSummary]:
    """One output, timed as its messages arrive, and its summary."""
    counts: list[int] = []
    arrivals: list[float] = []
    token_ids: list[int] = []
    summary = pb.GenerationSummary()
    async for response in stub.GenerateTokens(request, timeout=TIMEOUT):
        if response.tokens:
            arrivals.append(time.perf_counter())
            counts.append(len(response.tokens))
            token_ids += [token.id for token in response.tokens]
        if response.HasField("summary"):
            summary = response.summary
    received = Received(token_ids=token_ids, count=len(token_ids), first_count=counts[0], arrivals=arrivals)
    return received, summary


def counts_of(speculation: pb.SpeculationSummary) -> Counts:
    return Counts(
        rounds=speculation.round_count,
        drafted=speculation.draft_token_count,
        accepted=speculation.accepted_token_count,
        drafted_per_position=tuple(speculation.drafted_per_position),
        accepted_per_position=tuple(speculation.accepted_per_position),
        fallbacks=speculation.fallback_count,
        ahead_hits=speculation.ahead_hit_count,
        ahead_late=speculation.ahead_late_count,
        ahead_misses=speculation.ahead_miss_count,
        ahead_plain=speculation.ahead_plain_count,
        draft_seconds=speculation.draft_time_us / 1e6,
        verify_seconds=speculation.verify_time_us / 1e6,
        network_seconds=speculation.network_time_us / 1e6,
    )
