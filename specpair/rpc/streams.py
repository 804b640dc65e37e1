"""The server's side of a hot stream: many calls over one bidirectional stream, answered as they get ready."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio

from specpair.errors import SpecpairError
from specpair.rpc.status import internal_error, stream_error

MAX_CALLS_PER_STREAM = 1024
"""Calls of one stream that may be under way; beyond them the stream is not read, and the caller has to wait."""

logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")
RequestOut = TypeVar("RequestOut", covariant=True)


class Envelope(Protocol[RequestOut]):
    """A request on the stream, with the id under which it is answered."""

    @property
    def call_id(self) -> int: ...
    @property
    def request(self) -> RequestOut: ...


async def serve_calls(
    request_iterator: AsyncIterator[Envelope[Request]],
    context: grpc.aio.ServicerContext,
    handle: Callable[[Request], Awaitable[Response]],
    wrap_response: Callable[..., Any],
) -> None:
    """Answers the calls of one stream: `await serve_calls(requests, context, self._propose, StreamProposalsResponse)`.

    Each call runs in a task of its own. A SpecpairError of `handle` is the answer of that call alone, and so is
    an error that nobody foresaw, without its text. When the caller ends its side, the calls under way are still
    answered; when the stream breaks, they are cancelled. `wrap_response` takes `call_id` and `response` or `error`.
    """
    calls = _Calls(context, handle, wrap_response)
    async with asyncio.TaskGroup() as group:
        async for envelope in request_iterator:
            await calls.places.acquire()
            group.create_task(calls.answer(envelope))


class _Calls(Generic[Request, Response]):
    """The calls under way on one stream."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        handle: Callable[[Request], Awaitable[Response]],
        wrap_response: Callable[..., Any],
    ):
        self.places = asyncio.Semaphore(MAX_CALLS_PER_STREAM)
        self._context = context
        self._handle = handle
        self._wrap_response = wrap_response
        self._writing = asyncio.Lock()  # gRPC takes one write at a time

    async def answer(self, envelope: Envelope[Request]) -> None:
        try:
            message = await self._outcome(envelope)
            async with self._writing:
                await self._context.write(message)
        finally:
            self.places.release()

    async def _outcome(self, envelope: Envelope[Request]) -> Any:
        call_id = envelope.call_id
        try:
            return self._wrap_response(call_id=call_id, response=await self._handle(envelope.request))
        except SpecpairError as error:
            return self._wrap_response(call_id=call_id, error=stream_error(error))
        except Exception:
            logger.exception("a call on a stream failed")
            return self._wrap_response(call_id=call_id, error=stream_error(internal_error()))


class DrainableRequests(Generic[Request]):
    """The requests of a stream, which end early when the server wants to stop.

    Without this a stream that its client keeps open would hold up every shutdown for the whole grace time.
    """

    def __init__(self, request_iterator: AsyncIterator[Request]):
        self._request_iterator = request_iterator
        self._draining = False
        self._reader: asyncio.Task[Any] | None = None

    def __aiter__(self) -> "DrainableRequests[Request]":
        return self

    async def __anext__(self) -> Request:
        if self._draining:
            raise StopAsyncIteration
        reader = self._reader = asyncio.current_task()
        try:
            return await self._request_iterator.__anext__()
        except asyncio.CancelledError:
            if not self._draining or reader is None:
                raise
            reader.uncancel()
            raise StopAsyncIteration from None
        finally:
            self._reader = None

    def drain(self) -> None:
        """Ends the iteration, at once where somebody waits for the next request."""
        self._draining = True
        if self._reader is not None:
            self._reader.cancel()
