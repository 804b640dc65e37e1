"""What a caller gets to see of an exception, for each shape of call."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from specpair.errors import CapacityExhaustedError, InvalidFieldError, SpecpairError
from specpair.rpc.status import error_from_rpc
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from tests.service.rpc_servers import channel_to, draft_server

SECRET = "/home/somebody/secret"


class Generator:
    """Raises in every shape of handler; streams yield one answer before."""

    def __init__(self, error: BaseException):
        self._error = error

    async def unary_unary(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        raise self._error

    async def unary_stream(self, request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield b"first"
        raise self._error

    async def stream_unary(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
        async for _ in requests:
            raise self._error
        return b""

    async def stream_stream(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request
            raise self._error


async def call_unary_unary(channel: grpc.aio.Channel) -> None:
    await channel.unary_unary("/test.Test/unary_unary")(b"x", timeout=10)


async def call_unary_stream(channel: grpc.aio.Channel) -> None:
    call = channel.unary_stream("/test.Test/unary_stream")(b"x", timeout=10)
    assert await call.read() == b"first"
    await call.read()


async def call_stream_unary(channel: grpc.aio.Channel) -> None:
    await channel.stream_unary("/test.Test/stream_unary")(iter([b"x"]), timeout=10)


async def call_stream_stream(channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream("/test.Test/stream_stream")(timeout=10)
    await call.write(b"x")
    assert await call.read() == b"x"
    await call.read()


Call = Callable[[grpc.aio.Channel], Awaitable[None]]
every_shape = pytest.mark.parametrize(
    "call",
    [call_unary_unary, call_unary_stream, call_stream_unary, call_stream_stream],
    ids=lambda call: call.__name__.removeprefix("call_"),
)


@asynccontextmanager
async def raising_channel(error: BaseException) -> AsyncIterator[grpc.aio.Channel]:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    handlers: Any = Generator(error)
    shapes = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
    makers: dict[str, Any] = {shape: getattr(grpc, f"{shape}_rpc_method_handler") for shape in shapes}
    server.add_registered_method_handlers("test.Test", {s: makers[s](getattr(handlers, s)) for s in shapes})
    port = await server.start()
    await server.set_ready(True)
    try:
        async with channel_to(port) as channel:
            yield channel
    finally:
        await server.stop()


async def failure_of(call: Call, error: BaseException) -> grpc.aio.AioRpcError:
    async with raising_channel(error) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)
    return caught.value


@every_shape
async def test_error_arrives_with_status_and_particulars(call: Call) -> None:
    failure = await failure_of(call, InvalidFieldError("top_k", "is too large", limit=7))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = error_from_rpc(failure)
    assert type(error) is InvalidFieldError
    assert (error.message, error.metadata) == ("top_k: is too large", {"field": "top_k", "limit": "7"})


@every_shape
async def test_unforeseen_error_tells_nothing_and_is_logged(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="specpair"):
        failure = await failure_of(call, ValueError(SECRET))
    assert (failure.code(), failure.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert SECRET not in repr(failure) + repr(failure.trailing_metadata())
    assert type(error_from_rpc(failure)) is SpecpairError
    [record] = caplog.records
    assert SECRET in caplog.text
    assert "Traceback" in caplog.text
    assert vars(record)["method"] == f"/test.Test/{call.__name__.removeprefix('call_')}"


@every_shape
async def test_expected_error_is_not_logged(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    await failure_of(call, CapacityExhaustedError("full"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("shape", "method"),
    [
        ("unary_unary", "specpair.v1.DraftService/ProposeTokens"),
        ("stream_stream", "specpair.v1.DraftService/StreamProposals"),
        ("unary_unary", "grpc.health.v1.Health/Check"),
        ("unary_stream", "grpc.health.v1.Health/Watch"),
        ("stream_stream", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    ],
)
async def test_bytes_that_are_no_message_are_bad_input(
    shape: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        broken: Any = b"\xff\xff\xff" if shape.startswith("unary") else iter([b"\xff\xff\xff"])
        call = getattr(channel, shape)(f"/{method}")(broken, timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call if shape.endswith("unary") else call.read())
    error = error_from_rpc(caught.value)
    assert (type(error), error.metadata) == (InvalidFieldError, {"field": "request"})
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not caplog.records


async def test_abort_of_a_handler_passes(caplog: pytest.LogCaptureFixture) -> None:
    async def abort(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.DATA_LOSS, "as the handler said")

    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    server.add_registered_method_handlers("test.Test", {"Abort": grpc.unary_unary_rpc_method_handler(abort)})
    port = await server.start()
    async with channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Abort")(b"")
    await server.stop()
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, "as the handler said")
    assert not caplog.records


async def test_handler_of_a_caller_that_left_is_cancelled_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield b""
        finally:
            ended.set()

    server = ServiceServer(ServerConfig(port=0, grace_seconds=0))
    server.add_registered_method_handlers("test.Test", {"Wait": grpc.unary_stream_rpc_method_handler(wait)})
    port = await server.start()
    async with channel_to(port) as channel:
        call = channel.unary_stream("/test.Test/Wait")(b"")
        await begun.wait()
        call.cancel()
        await asyncio.wait_for(ended.wait(), 60)
    await server.stop()
    assert not caplog.records
