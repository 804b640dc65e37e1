"""Calls multiplexed over one stream: who gets which answer, and what happens when the stream breaks."""

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from specpair.client.channel import TOGETHER, proposal_caller, verification_caller
from specpair.errors import BaseLengthMismatchError, PeerUnavailableError, ShuttingDownError, SpecpairError
from specpair.server import streams
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb2
from specpair.v1.target_service_pb2_grpc import TargetServiceServicer, add_TargetServiceServicer_to_server
from tests.service.rpc_servers import (
    TIMEOUT,
    Gates,
    answer_after_recovery,
    caller_on,
    caller_to,
    calls,
    channel_to,
    draft_server,
    echo,
    request,
)


async def test_every_caller_gets_the_answer_to_its_own_call() -> None:
    async with caller_to() as caller:
        answers = await asyncio.gather(*(caller.call(request(step), TIMEOUT) for step in range(200)))
    assert [answer.step for answer in answers] == list(range(200))


async def test_answers_come_in_order_of_readiness() -> None:
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        slow, quick = (asyncio.create_task(caller.call(request(step), TIMEOUT)) for step in (1, 2))
        await gates.wait_begun(1, 2)
        gates.open(2)
        assert (await quick).step == 2
        assert not slow.done()
        gates.open(1)
        assert (await slow).step == 1


async def test_target_calls_travel_the_same_way() -> None:
    class FakeTarget(TargetServiceServicer):
        async def StreamVerifications(
            self,
            request_iterator: AsyncIterator[target_pb2.StreamVerificationsRequest],
            context: grpc.aio.ServicerContext,
        ) -> None:
            await streams.serve_calls(request_iterator, context, self._verify, target_pb2.StreamVerificationsResponse)

        async def _verify(self, request: target_pb2.VerifyProposalRequest) -> target_pb2.VerifyProposalResponse:
            return target_pb2.VerifyProposalResponse(step=request.step, accepted_count=3)

    async with draft_server() as (server, port):
        add_TargetServiceServicer_to_server(FakeTarget(), server)
        async with channel_to(port) as channel:
            caller = verification_caller(channel)
            answer = await caller.call(target_pb2.VerifyProposalRequest(step=5), TIMEOUT)
            await caller.close()
    assert (answer.step, answer.accepted_count) == (5, 3)


async def test_callers_that_are_answered_together_call_again_in_parts() -> None:
    """The peer has the first calls while this process is still busy with the other answers."""
    caller_count, sizes = 2 * TOGETHER, list[int]()

    class AnsweringTogether(TargetServiceServicer):
        async def StreamVerifications(
            self,
            request_iterator: AsyncIterator[target_pb2.StreamVerificationsRequest],
            context: grpc.aio.ServicerContext,
        ) -> None:
            answers = target_pb2.StreamVerificationsResponse()
            async for message in request_iterator:
                sizes.append(len(message.calls))
                for call in message.calls:
                    answers.answers.add(call_id=call.call_id, response={"step": call.request.step})
                if len(answers.answers) == caller_count:
                    await context.write(answers)
                    answers = target_pb2.StreamVerificationsResponse()

    async with draft_server() as (server, port):
        add_TargetServiceServicer_to_server(AnsweringTogether(), server)
        async with channel_to(port) as channel:
            caller = verification_caller(channel)

            async def call_twice(number: int) -> list[int]:
                requests = [target_pb2.VerifyProposalRequest(step=step) for step in (number, number + caller_count)]
                return [(await caller.call(request, TIMEOUT)).step for request in requests]

            steps = await asyncio.gather(*map(call_twice, range(caller_count)))
            await caller.close()
    assert steps == [[number, number + caller_count] for number in range(caller_count)]
    assert sizes[-2:] == [TOGETHER, TOGETHER]


async def test_error_of_one_call_leaves_the_stream_alone() -> None:
    gates = Gates()

    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        if request.step == 1:
            raise BaseLengthMismatchError(12, 9)
        return await gates.propose(request)

    async with caller_to(propose) as caller:
        other = asyncio.create_task(caller.call(request(2), TIMEOUT))
        await gates.wait_begun(2)
        with pytest.raises(BaseLengthMismatchError) as caught:
            await caller.call(request(1), TIMEOUT)
        assert caught.value.metadata == {"held_length": "9"}
        gates.open(2)
        assert (await other).step == 2


async def test_unforeseen_error_of_a_call_tells_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        raise RuntimeError("secret")

    async with caller_to(propose) as caller:
        with caplog.at_level(logging.ERROR, logger="specpair"), pytest.raises(SpecpairError) as caught:
            await caller.call(request(1), TIMEOUT)
    assert (type(caught.value), caught.value.message, caught.value.metadata) == (SpecpairError, "internal error", {})
    assert "RuntimeError: secret" in caplog.text


async def test_call_out_of_time_leaves_the_stream_alone_and_its_late_answer_is_dropped() -> None:
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        with pytest.raises(PeerUnavailableError, match=r"within 0\.05 s"):
            await caller.call(request(1), 0.05)
        other = asyncio.create_task(caller.call(request(2), TIMEOUT))
        await gates.wait_begun(2)
        gates.open(1)
        gates.open(2)
        assert (await other).step == 2
    assert gates.cancelled_steps == []


async def test_broken_stream_fails_its_calls_and_the_next_call_opens_another() -> None:
    gates = Gates()
    async with draft_server(gates.propose) as (_, port):
        caller_context = caller_on(port)
        caller = await caller_context.__aenter__()
        pending = [asyncio.create_task(caller.call(request(step), TIMEOUT)) for step in (1, 2)]
        await gates.wait_begun(1, 2)
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PeerUnavailableError, PeerUnavailableError]
    assert sorted(gates.cancelled_steps) == [1, 2]
    with pytest.raises(PeerUnavailableError):
        await caller.call(request(3), 0.2)
    async with draft_server(port=port):
        assert (await answer_after_recovery(caller, request(4))).step == 4
        await caller_context.__aexit__(None, None, None)


async def test_stream_that_ended_in_idleness_is_opened_anew() -> None:
    async with draft_server() as (_, port), caller_on(port) as caller:
        await caller.call(request(1), TIMEOUT)
        first = caller._stream
        assert first is not None
        first._stream.cancel()
        await asyncio.wait(first._tasks, timeout=TIMEOUT)
        assert (await caller.call(request(2), TIMEOUT)).step == 2
        assert caller._stream is not first


async def test_peer_that_was_never_there() -> None:
    async with draft_server() as (_, port):
        pass
    async with caller_on(port) as caller:
        with pytest.raises(PeerUnavailableError):
            await caller.call(request(1), TIMEOUT)


async def test_peer_that_serves_something_else() -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        caller = verification_caller(channel)
        # Which status the message names is open: a write that meets the end of the call hides it (grpc.aio).
        with pytest.raises(PeerUnavailableError, match="stream broke"):
            await caller.call(target_pb2.VerifyProposalRequest(), TIMEOUT)
        await caller.close()


async def test_closed_caller_fails_calls_under_way_and_later_ones() -> None:
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        pending = asyncio.create_task(caller.call(request(1), TIMEOUT))
        await gates.wait_begun(1)
        await caller.close()
        with pytest.raises(ShuttingDownError):
            await pending
        with pytest.raises(ShuttingDownError):
            await caller.call(request(2), TIMEOUT)


async def test_closed_channel_is_a_shutdown() -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        caller = proposal_caller(channel)
        await channel.close()
        with pytest.raises(ShuttingDownError):
            await caller.call(request(1), TIMEOUT)


async def test_channel_that_is_closed_fails_the_calls_under_way() -> None:
    gates = Gates()
    async with draft_server(gates.propose) as (_, port), channel_to(port) as channel:
        caller = proposal_caller(channel)
        pending = asyncio.create_task(caller.call(request(1), TIMEOUT))
        await gates.wait_begun(1)
        await channel.close()
        with pytest.raises(PeerUnavailableError, match="stream ended"):
            await pending


async def test_call_that_is_cancelled_leaves_the_stream_alone() -> None:
    gates = Gates()
    async with caller_to(gates.propose) as caller:
        abandoned, other = (asyncio.create_task(caller.call(request(step), TIMEOUT)) for step in (1, 2))
        await gates.wait_begun(1, 2)
        abandoned.cancel()
        gates.open(1)
        gates.open(2)
        assert (await other).step == 2


async def test_calls_of_a_client_that_left_are_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    gates = Gates()
    async with draft_server(gates.propose) as (_, port), channel_to(port) as channel:
        stream = channel.stream_stream("/specpair.v1.DraftService/StreamProposals")()
        for step in (1, 2):
            await stream.write(calls(step).SerializeToString())
        await gates.wait_begun(1, 2)
        stream.cancel()
        async with asyncio.timeout(TIMEOUT):
            while len(gates.cancelled_steps) < 2:
                await asyncio.sleep(0.01)
    assert not caplog.records


async def test_client_that_ends_its_side_still_gets_its_answers() -> None:
    gates = Gates()
    async with draft_server(gates.propose) as (_, port), channel_to(port) as channel:
        stream = channel.stream_stream("/specpair.v1.DraftService/StreamProposals")()
        await stream.write(calls(7).SerializeToString())
        await stream.done_writing()
        await gates.wait_begun(7)
        gates.open(7)
        messages = [pb.StreamProposalsResponse.FromString(data) async for data in stream]
        answers = [answer for message in messages for answer in message.answers]
    assert [(answer.call_id, answer.response.step) for answer in answers] == [(7, 7)]


async def test_answer_without_content_is_an_error() -> None:
    async with caller_to() as caller:
        await caller.call(request(1), TIMEOUT)
        stream = caller._stream
        assert stream is not None
        future = asyncio.get_running_loop().create_future()
        stream._waiting[99] = future
        stream._settle(pb.ProposalAnswer(call_id=99))
        with pytest.raises(SpecpairError, match="without content"):
            await future


async def test_a_message_that_cannot_be_read_ends_the_stream_behind_the_answers_under_way() -> None:
    """Whenever it comes: a write that is under way then is not cancelled, which would leave the call open."""

    async def propose(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        await asyncio.sleep(request.step % 5 * 0.002)
        return await echo(request)

    def messages(count: int) -> list[bytes]:
        calls = [{"call_id": i, "request": {"step": i * count}} for i in range(count)]
        return [pb.StreamProposalsRequest(calls=[call]).SerializeToString() for call in calls]

    async with draft_server(propose) as (_, port), channel_to(port) as channel:
        method = channel.stream_stream("/specpair.v1.DraftService/StreamProposals")
        for count in [*range(5)] * 6:
            call = method(iter([*messages(count), b"\xff\xff\xff"]), timeout=10)
            answered = 0
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for data in call:
                    answered += len(pb.StreamProposalsResponse.FromString(data).answers)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert answered == count
