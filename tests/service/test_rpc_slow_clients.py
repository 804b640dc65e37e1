"""Clients that stop reading, go away at a bad moment, or bring too much."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.errors import CapacityExhaustedError, ClientStalledError
from specpair.rpc.status import abort, error_from_rpc, peer_errors, rich_status
from specpair.server import interceptors
from specpair.server import server as rpc_server
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from tests.service.rpc_servers import channel_to

PIECE = bytes(256 * 1024)


@asynccontextmanager
async def serving(**methods: Any) -> AsyncIterator[tuple[ServiceServer, grpc.aio.Channel]]:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    server.add_registered_method_handlers("test.Test", methods)
    port = await server.start()
    async with channel_to(port) as channel:
        yield server, channel
    await server.stop()


class Endless:
    """A handler that writes until it is stopped."""

    def __init__(self) -> None:
        self.written = 0
        self.has_ended = asyncio.Event()

    async def generate(self, request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        try:
            while True:
                yield PIECE
                self.written += 1
        finally:
            self.has_ended.set()

    async def write(self, request: bytes, context: grpc.aio.ServicerContext) -> None:
        """The other kind of handler, with the write in a task of its own, as on the hot streams."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(context))
        finally:
            self.has_ended.set()

    async def _write(self, context: grpc.aio.ServicerContext) -> None:
        while True:
            await context.write(PIECE)
            self.written += 1


@pytest.mark.parametrize("kind", ["generate", "write"])
async def test_a_client_that_reads_nothing_loses_its_call(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interceptors, "STALLED_SECONDS", 0.3)
    monkeypatch.setattr(interceptors, "ABORT_SECONDS", 0.1)
    handler = Endless()
    async with serving(Endless=grpc.unary_stream_rpc_method_handler(getattr(handler, kind))) as (_, channel):
        call: Any = channel.unary_stream("/test.Test/Endless")(b"")
        await call.read()
        await asyncio.wait_for(handler.has_ended.wait(), 60)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while True:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED, "which it gets to know when it reads again"
        assert isinstance(error_from_rpc(caught.value), ClientStalledError)
    assert handler.written < 200, "what nobody reads is not written for long"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "read nothing" in caplog.text


async def test_a_write_after_a_pause_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that looks after writes finds none during the pause."""
    monkeypatch.setattr(interceptors, "STALLED_SECONDS", 0.3)
    monkeypatch.setattr(interceptors, "ABORT_SECONDS", 0.1)
    handler = Endless()

    async def late(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield b"early"
        await asyncio.sleep(1.0)
        async for piece in handler.generate(request, context):
            yield piece

    async with serving(Endless=grpc.unary_stream_rpc_method_handler(late)) as (_, channel):
        call: Any = channel.unary_stream("/test.Test/Endless")(b"")
        await call.read()
        await asyncio.wait_for(handler.has_ended.wait(), 60)
    assert handler.written < 200


async def test_a_client_that_reads_slowly_keeps_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptors, "STALLED_SECONDS", 3.0)
    handler = Endless()
    async with serving(Endless=grpc.unary_stream_rpc_method_handler(handler.generate)) as (_, channel):
        call: Any = channel.unary_stream("/test.Test/Endless")(b"")
        for _ in range(40):
            assert await call.read() == PIECE
            await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait_for(handler.has_ended.wait(), 60)


def traces(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, but for the word that a server stops."""
    return [record.getMessage() for record in caplog.records if not record.getMessage().startswith("stopping: ")]


async def test_a_client_that_goes_away_during_an_error_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    """Its status cannot be sent any more, or its message; both are nobody's fault."""

    async def abort_itself(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await asyncio.sleep(0.002)
        await abort(context, rich_status(CapacityExhaustedError("full")))

    async def write_in_a_task(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(write_much(context))
            async for _ in requests:
                pass

    async def write_much(context: grpc.aio.ServicerContext) -> None:
        for _ in range(100):
            await context.write(bytes(1000))

    handlers = {
        "Abort": grpc.unary_unary_rpc_method_handler(abort_itself),
        "Write": grpc.stream_stream_rpc_method_handler(write_in_a_task),
    }
    with caplog.at_level(logging.INFO):
        async with serving(**handlers) as (_, channel):
            for turn in range(100):
                unary: Any = channel.unary_unary("/test.Test/Abort")(b"")
                stream: Any = channel.stream_stream("/test.Test/Write")()
                reads = [asyncio.ensure_future(work) for work in (wait_for(unary), stream.read())]
                await asyncio.sleep(turn * 0.00005)
                unary.cancel()
                stream.cancel()
                await asyncio.gather(*reads, return_exceptions=True)
            await asyncio.sleep(0.1)
    assert traces(caplog) == []


async def wait_for(call: Any) -> Any:
    return await call


async def test_a_server_that_stops_during_an_error_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def fail(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise CapacityExhaustedError("full")
        yield b""

    with caplog.at_level(logging.INFO):
        async with serving(Fail=grpc.unary_stream_rpc_method_handler(fail)) as (server, channel):
            call: Any = channel.unary_stream("/test.Test/Fail")(b"")
            reading = asyncio.ensure_future(call.read())
            await begun.wait()
            await server.stop()
            with pytest.raises(grpc.aio.AioRpcError):
                await reading
    assert traces(caplog) == []


async def test_more_calls_than_a_server_bears_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "MAX_CALLS", 2)
    handler = Endless()
    async with serving(Endless=grpc.unary_stream_rpc_method_handler(handler.generate)) as (_, channel):
        calls: list[Any] = [channel.unary_stream("/test.Test/Endless")(b"") for _ in range(2)]
        for call in calls:
            await call.read()
        with pytest.raises(CapacityExhaustedError, match="too many calls at once"), peer_errors():
            await channel.unary_stream("/test.Test/Endless")(b"").read()
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert await health.Check(health_pb2.HealthCheckRequest())
        calls[0].cancel()
        async with asyncio.timeout(60):
            while not await is_taken(channel):
                await asyncio.sleep(0.01)
        calls[1].cancel()


async def is_taken(channel: grpc.aio.Channel) -> bool:
    """Whether one more call is."""
    call: Any = channel.unary_stream("/test.Test/Endless")(b"")
    try:
        with peer_errors():
            await call.read()
    except CapacityExhaustedError:
        return False
    call.cancel()
    return True


async def test_headers_have_a_limit() -> None:
    handler = Endless()
    async with serving(Endless=grpc.unary_stream_rpc_method_handler(handler.generate)) as (_, channel):
        metadata = (("x-large", "x" * 2 * rpc_server.MAX_METADATA_BYTES),)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_stream("/test.Test/Endless")(b"", metadata=metadata).read()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert handler.written == 0


async def test_a_message_cannot_be_more_than_was_sent() -> None:
    """A thousandth of its bytes would be enough for one that is compressed."""
    seen: list[bytes] = []

    async def take(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        seen.append(request)
        return b""

    async with serving(Take=grpc.unary_unary_rpc_method_handler(take)) as (_, channel):
        call = channel.unary_unary("/test.Test/Take")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(bytes(1 << 20), compression=grpc.Compression.Gzip, timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not seen
        await call(PIECE, timeout=60)
    assert seen == [PIECE]
