"""Bearer tokens over gRPC: who gets in, under which name, and what stays open."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from specpair.client.channel import proposal_caller
from specpair.errors import PeerUnavailableError, UnauthenticatedError
from specpair.rpc.status import error_from_rpc
from specpair.security.settings import PLAIN, ChannelSecurity, ServerSecurity
from specpair.server.identity import client_name
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from tests.service.rpc_servers import Gates, channel_to, draft_server

ALICE = "alice-has-this-token"
BOB = "bob-has-another-token"
TIMEOUT = 60.0


async def tell_name(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    """In a task of its own, as work often is."""
    name = await asyncio.create_task(asyncio.to_thread(client_name))
    return pb.ProposeTokensResponse(instance_id=name, step=request.step)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    return path


def protected(tokens: Path) -> ServerSecurity:
    return ServerSecurity(tokens_file=str(tokens))


async def test_calls_and_streams_carry_the_name_of_their_client(tokens: Path) -> None:
    async with draft_server(tell_name, security=protected(tokens)) as (_, port):
        for token, name in ((ALICE, "alice"), (BOB, "bob")):
            async with channel_to(port, ChannelSecurity(token=token)) as channel:
                unary = await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)
                streamed = await proposal_caller(channel).call(pb.ProposeTokensRequest(), TIMEOUT)
                assert (unary.instance_id, streamed.instance_id) == (name, name)


async def test_names_do_not_outlive_their_calls(tokens: Path) -> None:
    async with (
        draft_server(tell_name, security=protected(tokens)) as (_, port),
        channel_to(port, ChannelSecurity(token=ALICE)) as hers,
        channel_to(port, ChannelSecurity(token=BOB)) as his,
    ):
        callers = [proposal_caller(hers), proposal_caller(his)] * 20
        answers = [caller.call(pb.ProposeTokensRequest(step=n), TIMEOUT) for n, caller in enumerate(callers)]
        names = [answer.instance_id for answer in await asyncio.gather(*answers)]
    assert names == ["alice", "bob"] * 20
    assert client_name() == ""


@pytest.mark.parametrize("security", [PLAIN, ChannelSecurity(token="nobody-has-this-token")])
async def test_strangers_are_refused_by_every_kind_of_method(tokens: Path, security: ChannelSecurity) -> None:
    handled: list[Any] = []

    async def remember(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        handled.append(request)
        return pb.ProposeTokensResponse()

    async with draft_server(remember, security=protected(tokens)) as (_, port), channel_to(port, security) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert isinstance(error_from_rpc(caught.value), UnauthenticatedError)
        with pytest.raises(PeerUnavailableError, match="a valid bearer token is needed"):
            await proposal_caller(channel).call(pb.ProposeTokensRequest(), TIMEOUT)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/specpair.v1.DraftService/NoSuchMethod")(b"", timeout=TIMEOUT)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert handled == []


async def test_health_is_open_and_reflection_is_not(tokens: Path) -> None:
    async with draft_server(security=protected(tokens)) as (_, port):
        async with channel_to(port) as channel:
            health: Any = HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await reflected(channel, no_message())
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        async with channel_to(port, ChannelSecurity(token=ALICE)) as channel:
            listed = await reflected(channel, iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            assert "specpair.v1.DraftService" in {service.name for service in listed.list_services_response.service}


async def test_strangers_hold_no_calls_with_checks_that_they_do_not_finish(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what they send read: they get the state of the process, whatever they ask, or do not."""
    monkeypatch.setattr("specpair.server.server.MAX_CALLS", 2)
    forever = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        await forever.wait()
        yield b""

    async with draft_server(tell_name, security=protected(tokens)) as (_, port), channel_to(port) as channel:
        check: Any = channel.stream_unary("/grpc.health.v1.Health/Check")
        for _ in range(4):
            said = health_pb2.HealthCheckResponse.FromString(await check(nothing(), timeout=TIMEOUT))
            assert said.status == health_pb2.HealthCheckResponse.SERVING
        named = health_pb2.HealthCheckRequest(service="no-such-service")
        stub: Any = HealthStub(channel)
        assert (await stub.Check(named, timeout=TIMEOUT)).status == health_pb2.HealthCheckResponse.SERVING
        async with channel_to(port, ChannelSecurity(token=ALICE)) as hers:
            stub = HealthStub(hers)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Check(named, timeout=TIMEOUT)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        forever.set()


async def test_a_token_can_be_replaced_while_both_sides_run(tokens: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text(ALICE)
    async with (
        draft_server(tell_name, security=protected(tokens)) as (_, port),
        channel_to(port, ChannelSecurity(token_file=str(mine))) as channel,
    ):
        stub = DraftServiceStub(channel)
        tokens.write_text("alice:another-token-for-alice\n")  # noqa: ASYNC240
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)
        mine.write_text("another-token-for-alice\n")
        assert (await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)).instance_id == "alice"


@pytest.mark.parametrize("left", [f"bob:{BOB}\n", f"bob:{BOB}\nmallory:{ALICE}\n", ""])
async def test_an_open_stream_ends_when_its_token_is_taken_away(left: str, tokens: Path) -> None:
    """Or given to another client. What is under way is still answered, and nothing more is taken."""
    gates = Gates()
    async with (
        draft_server(gates.propose, security=protected(tokens)) as (_, port),
        channel_to(port, ChannelSecurity(token=ALICE)) as channel,
    ):
        stream: Any = DraftServiceStub(channel).StreamProposals(timeout=TIMEOUT)
        await stream.write(message(1))
        await gates.wait_begun(1)
        tokens.write_text(left)  # noqa: ASYNC240
        await stream.write(message(2))
        gates.open(1)
        assert [answer.response.step for answer in (await stream.read()).answers] == [1]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert isinstance(error_from_rpc(caught.value), UnauthenticatedError)
    assert gates.begun_steps == {1}


async def test_an_open_stream_goes_on_when_other_tokens_change(tokens: Path) -> None:
    async with (
        draft_server(tell_name, security=protected(tokens)) as (_, port),
        channel_to(port, ChannelSecurity(token=ALICE)) as channel,
    ):
        stream: Any = DraftServiceStub(channel).StreamProposals(timeout=TIMEOUT)
        for step, text in enumerate((None, f"alice:{ALICE}\n", f"alice:another-of-hers-too\nalice:{ALICE}\n")):
            if text is not None:
                tokens.write_text(text)  # noqa: ASYNC240
            await stream.write(message(step))
            assert (await stream.read()).answers[0].response.instance_id == "alice"


def message(step: int) -> pb.StreamProposalsRequest:
    """With one call."""
    return pb.StreamProposalsRequest(calls=[pb.ProposalCall(call_id=1, request=pb.ProposeTokensRequest(step=step))])


async def test_without_tokens_everybody_is_anonymous(tokens: Path) -> None:
    async with draft_server(tell_name) as (_, port), channel_to(port, ChannelSecurity(token=ALICE)) as channel:
        answer = await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)
    assert answer.instance_id == ""


async def no_message() -> AsyncIterator[Any]:
    """If a call is refused while a message is on its way, gRPC reports that instead of the refusal."""
    await asyncio.Event().wait()
    yield


async def reflected(channel: Any, requests: Any) -> Any:
    """What reflection says of the services."""
    stub: Any = ServerReflectionStub(channel)
    async for response in stub.ServerReflectionInfo(requests, timeout=TIMEOUT):
        return response
    raise AssertionError("the answer is empty")
