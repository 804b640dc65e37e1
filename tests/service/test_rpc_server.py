"""Health, reflection, start and stop of a service's server."""

import asyncio
import time
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from specpair.client.channel import proposal_caller
from specpair.errors import PeerUnavailableError, ShuttingDownError, StartingError
from specpair.rpc.status import error_from_rpc, peer_errors
from specpair.server.config import ServerConfig
from specpair.server.running_calls import RunningCalls
from specpair.server.server import BindError, ServiceServer
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub, add_DraftServiceServicer_to_server
from tests.service.rpc_servers import FakeDraft, Gates, channel_to, draft_server, echo

DRAFT = "specpair.v1.DraftService"
STATES = health_pb2.HealthCheckResponse


async def health_of(channel: grpc.aio.Channel, service: str = "") -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)).status


async def test_health_follows_readiness() -> None:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    port = await server.start()
    async with channel_to(port) as channel:
        assert await health_of(channel) == STATES.NOT_SERVING
        add_DraftServiceServicer_to_server(FakeDraft(echo), server)
        await server.set_ready(True)
        assert [await health_of(channel), await health_of(channel, DRAFT)] == [STATES.SERVING] * 2
        await server.set_ready(False)
        assert [await health_of(channel), await health_of(channel, DRAFT)] == [STATES.NOT_SERVING] * 2
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(channel, "specpair.v1.TargetService")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    await server.stop()


async def test_calls_before_readiness_are_unavailable_and_afterwards_served() -> None:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    port = await server.start()
    async with channel_to(port) as channel:
        stub = DraftServiceStub(channel)
        with pytest.raises(StartingError), peer_errors():
            await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=60)
        caller = proposal_caller(channel)
        with pytest.raises(PeerUnavailableError, match="starting"):
            await caller.call(pb.ProposeTokensRequest(), 60)
        add_DraftServiceServicer_to_server(FakeDraft(echo), server)
        await server.set_ready(True)
        assert (await stub.ProposeTokens(pb.ProposeTokensRequest(step=1), timeout=60)).step == 1
        assert (await caller.call(pb.ProposeTokensRequest(step=2), 60)).step == 2
        await caller.close()
    await server.stop()


async def test_unknown_method_is_unimplemented_once_ready() -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{DRAFT}/Nothing")(b"", timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_reflection_names_the_services_and_describes_them() -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(Any, channel))
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=DRAFT),
        ]
        listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(requests), timeout=60)]
    assert [service.name for service in listed.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        DRAFT,
    ]
    assert described.file_descriptor_response.file_descriptor_proto


async def test_taken_address_is_named() -> None:
    async with draft_server() as (_, port):
        server = ServiceServer(ServerConfig(port=port))
        with pytest.raises(BindError, match=f"127.0.0.1:{port}: it is in use.*see --host and --port"):
            await server.start()
        await server.stop()


async def test_stop_does_not_wait_for_idle_streams() -> None:
    async with draft_server(grace_seconds=600) as (server, port), channel_to(port) as channel:
        caller = proposal_caller(channel)
        await caller.call(pb.ProposeTokensRequest(), 60)
        start = time.monotonic()
        await server.stop()
        assert time.monotonic() - start < 60
        await caller.close()


async def test_stop_lets_calls_under_way_finish() -> None:
    gates = Gates()
    async with draft_server(gates.propose, grace_seconds=600) as (server, port), channel_to(port) as channel:
        caller = proposal_caller(channel)
        on_stream = asyncio.create_task(caller.call(pb.ProposeTokensRequest(step=1), 60))
        unary = DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(step=2), timeout=60)
        await gates.wait_begun(1, 2)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.1)
        assert not stopping.done()
        gates.open(1)
        gates.open(2)
        assert [(await on_stream).step, (await unary).step] == [1, 2]
        await asyncio.wait_for(stopping, 60)
        await caller.close()


async def test_calls_that_nobody_looked_at_before_the_stop_are_told_why() -> None:
    """grpc.aio takes one at a time out of gRPC's queue, and gRPC cancels what is in it when its server stops."""
    async with draft_server(grace_seconds=600) as (server, port), channel_to(port) as channel:
        stub = DraftServiceStub(channel)
        await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=60)
        calls = [stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=60) for _ in range(20)]
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 (a busy loop: they come, and nobody looks)
        await server.stop()
        ends = await asyncio.gather(*calls, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, grpc.aio.AioRpcError)]
    assert len(refused) > len(calls) / 2
    assert {type(error_from_rpc(end)) for end in refused} == {ShuttingDownError}


async def test_those_who_call_without_end_do_not_hold_up_a_stop() -> None:
    calls = RunningCalls(10)

    async def insist() -> None:
        while True:
            calls.arrive()
            await asyncio.sleep(0)

    insisting = asyncio.create_task(insist())
    async with asyncio.timeout(30):
        await calls.wait_until_quiet(0.2)
    insisting.cancel()


async def test_stop_cancels_what_outlasts_the_grace_time() -> None:
    gates = Gates()
    async with draft_server(gates.propose, grace_seconds=0.1) as (server, port), channel_to(port) as channel:
        caller = proposal_caller(channel)
        pending = asyncio.create_task(caller.call(pb.ProposeTokensRequest(step=1), 60))
        await gates.wait_begun(1)
        await server.stop()
        with pytest.raises(PeerUnavailableError):
            await pending
        assert gates.cancelled_steps == [1]
        await caller.close()


async def test_health_turns_when_the_server_stops() -> None:
    gates = Gates()
    async with draft_server(gates.propose, grace_seconds=600) as (server, port), channel_to(port) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=DRAFT))
        assert (await watch.read()).status == STATES.SERVING
        stopping = asyncio.create_task(server.stop())
        assert (await watch.read()).status == STATES.NOT_SERVING
        watch.cancel()
        await asyncio.wait_for(stopping, 60)
