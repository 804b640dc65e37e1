"""What travels together over a stream, and how much of it at most."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from specpair.client import channel as client
from specpair.errors import InvalidFieldError, SpecpairError
from specpair.server import streams
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import proposal_pb2
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from tests.service import rpc_servers
from tests.service.rpc_servers import TIMEOUT, Gates, caller_to, calls, channel_to, draft_server, request


async def test_stream_is_not_read_beyond_its_limit_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CALLS_PER_STREAM", 2)
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        pending = [asyncio.create_task(caller.call(request(step), TIMEOUT)) for step in range(4)]
        await gates.wait_begun(0, 1)
        await asyncio.sleep(0.1)
        assert gates.begun_steps == {0, 1}
        for step in range(4):
            gates.open(step)
        assert [answer.step for answer in await asyncio.gather(*pending)] == [0, 1, 2, 3]


async def test_request_over_the_limit_is_refused_before_it_breaks_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        other = asyncio.create_task(caller.call(request(1), TIMEOUT))
        await gates.wait_begun(1)
        monkeypatch.setattr(client, "MAX_MESSAGE_BYTES", 1000)
        with pytest.raises(InvalidFieldError, match="1000"):
            await caller.call(pb.ProposeTokensRequest(sequence_id="x" * 1000), TIMEOUT)
        gates.open(1)
        assert (await other).step == 1


async def test_answer_over_the_default_limit_of_grpc_passes() -> None:
    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        tensor = proposal_pb2.Tensor(data=bytes(8 * 1024 * 1024))
        dense = proposal_pb2.DenseDistributions(probabilities=tensor)
        return pb.ProposeTokensResponse(
            proposal=proposal_pb2.Proposal(distributions=proposal_pb2.Distributions(dense=dense))
        )

    async with caller_to(propose) as caller:
        answer = await caller.call(request(1), TIMEOUT)
    assert len(answer.proposal.distributions.dense.probabilities.data) == 8 * 1024 * 1024


async def test_answers_that_get_ready_together_travel_together() -> None:
    gates = Gates()
    async with draft_server(gates.propose) as (_, port), channel_to(port) as channel:
        stream = channel.stream_stream(
            "/specpair.v1.DraftService/StreamProposals", response_deserializer=pb.StreamProposalsResponse.FromString
        )()
        await stream.write(calls(1, 2, 3).SerializeToString())
        messages = aiter(stream)
        await gates.wait_begun(1, 2, 3)
        for step in (3, 1):
            gates.open(step)
        assert sorted(answer.call_id for answer in (await anext(messages)).answers) == [1, 3]
        gates.open(2)
        assert [answer.call_id for answer in (await anext(messages)).answers] == [2]
        stream.cancel()


@pytest.mark.parametrize(("limit", "message_count"), [(10_000, 1), (200, 4), (10, 4)])
async def test_calls_travel_together_up_to_a_size(
    limit: int, message_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_TOGETHER_BYTES", limit)
    monkeypatch.setattr(streams, "MAX_TOGETHER_BYTES", limit)
    seen: list[int] = []

    async def count(
        request_iterator: AsyncIterator[pb.StreamProposalsRequest],
    ) -> AsyncIterator[pb.StreamProposalsRequest]:
        async for message in request_iterator:
            seen.append(len(message.calls))
            yield message

    serve_calls = streams.serve_calls
    monkeypatch.setattr(rpc_servers, "serve_calls", lambda requests, *others: serve_calls(count(requests), *others))
    async with caller_to() as caller:
        await caller.call(request(0), TIMEOUT)
        seen.clear()
        long = [pb.ProposeTokensRequest(sequence_id="x" * 150, step=step) for step in range(4)]
        answers = await asyncio.gather(*(caller.call(one, TIMEOUT) for one in long))
    assert [answer.step for answer in answers] == [0, 1, 2, 3]
    assert len(seen) == message_count and sum(seen) == 4


async def test_an_answer_that_is_too_large_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_ANSWER_BYTES", 100)

    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        return pb.ProposeTokensResponse(instance_id="x" * (200 if request.step == 1 else 10), step=request.step)

    async with caller_to(propose) as caller:
        outcomes = await asyncio.gather(
            *(caller.call(request(step), TIMEOUT) for step in range(3)), return_exceptions=True
        )
    assert isinstance(outcomes[1], SpecpairError) and "100 can be sent" in outcomes[1].message
    assert [outcome.step for outcome in outcomes if isinstance(outcome, pb.ProposeTokensResponse)] == [0, 2]


async def test_a_stream_holds_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third message is not taken on while the calls of two large ones are under way."""
    size = 1000
    monkeypatch.setattr(streams, "MAX_BYTES_PER_STREAM", 2 * size + 200)
    gates = Gates()

    def message(step: int) -> pb.StreamProposalsRequest:
        large = pb.ProposeTokensRequest(sequence_id="s" * size, step=step)
        return pb.StreamProposalsRequest(calls=[pb.ProposalCall(call_id=step, request=large)])

    async with draft_server(gates.propose) as (_, port), channel_to(port) as channel:
        stream = DraftServiceStub(channel).StreamProposals()
        for step in (1, 2, 3):
            await stream.write(message(step))
        await gates.wait_begun(1, 2)
        await asyncio.sleep(0.1)
        assert gates.begun_steps == {1, 2}
        gates.open(2)
        async with asyncio.timeout(TIMEOUT):
            assert [answer.call_id for answer in (await stream.read()).answers] == [2]
            await gates.wait_begun(3)
            for step in (1, 3):
                gates.open(step)
            answers: list[int] = []
            while len(answers) < 2:
                answers += [answer.call_id for answer in (await stream.read()).answers]
        assert sorted(answers) == [1, 3]


async def test_answers_that_nobody_reads_hold_up_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC itself takes some megabytes of answers; behind them the next calls are not begun."""
    answer_bytes = 1024 * 1024
    monkeypatch.setattr(streams, "MAX_BYTES_PER_STREAM", 4 * answer_bytes)
    begun = 0

    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        nonlocal begun
        begun += 1
        return pb.ProposeTokensResponse(instance_id="s" * answer_bytes)

    async with draft_server(propose) as (_, port), channel_to(port) as channel:
        stream = DraftServiceStub(channel).StreamProposals()
        for step in range(200):
            await stream.write(calls(step))
        await asyncio.sleep(1)
        assert begun < 50
        await stream.done_writing()
        async with asyncio.timeout(TIMEOUT):
            answered = [answer.call_id async for message in stream for answer in message.answers]
        assert sorted(answered) == list(range(200))
