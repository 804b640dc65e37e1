"""What the server counts of its calls, over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.registry import CollectorRegistry

from specpair.client.channel import ProposalCaller, proposal_caller
from specpair.errors import SequenceNotFoundError
from specpair.security.settings import UNPROTECTED, ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub, add_DraftServiceServicer_to_server
from tests.service.rpc_servers import FakeDraft, Propose, channel_to, echo

SERVICE = "specpair.v1.DraftService"


class Counts:
    """The metrics of one method."""

    def __init__(self, registry: CollectorRegistry, kind: str, method: str):
        self._registry = registry
        self._labels = {"grpc_type": kind, "grpc_service": SERVICE, "grpc_method": method}

    def __getitem__(self, name: str) -> float | None:
        return self._registry.get_sample_value(f"grpc_server_{name}", self._labels)

    def handled(self, code: str) -> float | None:
        return self._registry.get_sample_value("grpc_server_handled_total", {**self._labels, "grpc_code": code})


@asynccontextmanager
async def counting_server(
    propose: Propose, security: ServerSecurity = UNPROTECTED
) -> AsyncIterator[tuple[CollectorRegistry, grpc.aio.Channel]]:
    registry = CollectorRegistry()
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0, security=security), registry)
    add_DraftServiceServicer_to_server(FakeDraft(propose), server)
    port = await server.start()
    try:
        await server.set_ready(True)
        async with channel_to(port) as channel:
            yield registry, channel
    finally:
        await server.stop()


async def refuse(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    raise SequenceNotFoundError(request.sequence_id)


async def fail(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    raise RuntimeError("a secret")


async def never(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def until(value: Any) -> None:
    """The server counts the end of a call when it notices it, which may be after its client did."""
    async with asyncio.timeout(60):
        while not value():
            await asyncio.sleep(0.01)


async def test_unary_call() -> None:
    async with counting_server(echo) as (registry, channel):
        for _ in range(3):
            await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest())
        counts = Counts(registry, "unary", "ProposeTokens")
        await until(lambda: counts.handled("OK") == 3)
        assert counts["started_total"] == 3
        assert counts["msg_received_total"] == 3
        assert counts["msg_sent_total"] == 3
        assert counts["handling_seconds_count"] == 3


@pytest.mark.parametrize(("propose", "code"), [(refuse, "NotFound"), (fail, "Internal")])
async def test_failed_call_has_its_code(propose: Propose, code: str) -> None:
    async with counting_server(propose) as (registry, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest())
        counts = Counts(registry, "unary", "ProposeTokens")
        await until(lambda: counts.handled(code) == 1)
        assert counts.handled("OK") is None
        assert counts["msg_sent_total"] == 0


async def test_a_call_without_a_token_is_of_the_kind_of_its_method(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:alice-has-this-token\n")
    async with counting_server(echo, ServerSecurity(tokens_file=str(tokens))) as (registry, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest())
        counts = Counts(registry, "unary", "ProposeTokens")
        await until(lambda: counts.handled("Unauthenticated") == 1)
        assert counts["started_total"] == 1


async def test_call_that_its_client_leaves() -> None:
    async with counting_server(never) as (registry, channel):
        counts = Counts(registry, "unary", "ProposeTokens")
        call = DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest())
        await until(lambda: counts["started_total"] == 1)
        call.cancel()
        await until(lambda: counts.handled("Canceled") == 1)


async def test_call_that_takes_too_long() -> None:
    async with counting_server(never) as (registry, channel):
        counts = Counts(registry, "unary", "ProposeTokens")
        with pytest.raises(grpc.aio.AioRpcError):
            await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(), timeout=0.2)
        await until(lambda: counts.handled("DeadlineExceeded") == 1)


async def test_messages_of_a_stream() -> None:
    """Calls one after the other travel one to a message; the stream is handled when it ends."""
    async with counting_server(echo) as (registry, channel):
        caller: ProposalCaller = proposal_caller(channel)
        for step in range(4):
            await caller.call(pb.ProposeTokensRequest(step=step), 60)
        counts = Counts(registry, "bidi_stream", "StreamProposals")
        await until(lambda: counts["msg_sent_total"] == 4)
        assert counts["started_total"] == 1
        assert counts["msg_received_total"] == 4
        assert not counts["handling_seconds_count"]
        await caller.close()
        await until(lambda: counts["handling_seconds_count"] == 1)


async def test_stream_of_answers() -> None:
    """An asynchronous generator or a writer behind the same interface: the health service's Watch."""
    async with counting_server(echo) as (registry, channel):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        labels = {"grpc_type": "server_stream", "grpc_service": "grpc.health.v1.Health", "grpc_method": "Watch"}
        assert registry.get_sample_value("grpc_server_msg_received_total", labels) == 1
        await until(lambda: registry.get_sample_value("grpc_server_msg_sent_total", labels) == 1)
        watch.cancel()
        canceled = {**labels, "grpc_code": "Canceled"}
        await until(lambda: registry.get_sample_value("grpc_server_handled_total", canceled) == 1)


async def test_made_up_names_are_no_labels() -> None:
    """Neither while the service starts, when every method is answered, nor afterwards."""
    registry = CollectorRegistry()
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0), registry)
    port = await server.start()
    try:
        async with channel_to(port) as channel:
            for is_ready in (False, True):
                await server.set_ready(is_ready)
                call = channel.unary_unary(f"/made.Up/Name{is_ready}")(b"")
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
    finally:
        await server.stop()
    assert [sample for family in registry.collect() for sample in family.samples] == []
