"""A message is let go as soon as its call has ended, however it ended: one may have 64 MiB, and many may be refused."""

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from specpair.errors import InvalidFieldError
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1 import draft_service_pb2 as pb
from tests.service.rpc_servers import TIMEOUT, calls, channel_to, draft_server

MakeError = Callable[[], Exception]
SHAPES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
OUTCOMES = [None, lambda: InvalidFieldError("top_k", "is too large"), lambda: ValueError("of our own")]


class Large:
    """A message as it was decoded."""

    def __init__(self, data: bytes):
        self.data = data


class Handlers:
    """Each notes the message that it got and answers it, or raises an error while it has it."""

    def __init__(self, make_error: MakeError | None):
        self._make_error = make_error
        self.seen: list[weakref.ref[Large]] = []

    def _answer(self, message: Large) -> bytes:
        self.seen.append(weakref.ref(message))
        if self._make_error is not None:
            raise self._make_error()
        return message.data

    async def unary_unary(self, request: Large, context: grpc.aio.ServicerContext) -> bytes:
        return self._answer(request)

    async def unary_stream(self, request: Large, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield self._answer(request)

    async def stream_unary(self, requests: AsyncIterator[Large], context: grpc.aio.ServicerContext) -> bytes:
        return [self._answer(request) async for request in requests][-1]

    async def stream_stream(
        self, requests: AsyncIterator[Large], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield self._answer(request)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to is freed, not what refers to itself."""
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps the exceptions that are logged
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


@asynccontextmanager
async def serving(handlers: Handlers) -> AsyncIterator[grpc.aio.Channel]:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0), CollectorRegistry())
    makers: dict[str, Any] = {shape: getattr(grpc, f"{shape}_rpc_method_handler") for shape in SHAPES}
    server.add_registered_method_handlers("test.Test", {s: makers[s](getattr(handlers, s), Large) for s in SHAPES})
    port = await server.start()
    await server.set_ready(True)
    try:
        async with channel_to(port) as channel:
            yield channel
    finally:
        await server.stop()


async def status_of(channel: grpc.aio.Channel, shape: str) -> grpc.StatusCode:
    """Of a call with one message, once it has ended."""
    sent: Any = b"message" if shape.startswith("unary") else iter([b"message"])
    call = getattr(channel, shape)(f"/test.Test/{shape}")(sent, timeout=TIMEOUT)
    if shape.endswith("stream"):
        with suppress(grpc.aio.AioRpcError):
            _ = [answer async for answer in call]
    return await call.code()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not is_so():
            await asyncio.sleep(0.01)


def messages() -> int:
    """Messages of hot streams that this process holds."""
    return sum(type(one) is pb.StreamProposalsRequest for one in gc.get_objects())


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("make_error", OUTCOMES, ids=["answered", "refused", "failed"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_message_is_let_go_when_its_call_ends(shape: str, make_error: MakeError | None) -> None:
    handlers = Handlers(make_error)
    async with serving(handlers) as channel:
        assert (await status_of(channel, shape) is grpc.StatusCode.OK) is (make_error is None)
        [message] = handlers.seen
        await until(lambda: message() is None)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("end", ["a message that cannot be read", "its client leaves"])
async def test_messages_of_a_hot_stream_are_let_go_when_it_ends(end: str) -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        stream = channel.stream_stream("/specpair.v1.DraftService/StreamProposals")()
        await stream.write(calls(1).SerializeToString())
        await stream.read()
        if end == "its client leaves":
            stream.cancel()
        else:
            await stream.write(b"\xff\xff\xff")
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: messages() == 0)
