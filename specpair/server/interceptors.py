"""Turns the exceptions of handlers into gRPC statuses. No other place does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from specpair.errors import ClientStalledError, SpecpairError
from specpair.rpc.decoding import lenient, lenient_calls, readable
from specpair.rpc.status import abort, internal_error, rich_status
from specpair.server.config import STALLED_SECONDS
from specpair.server.handlers import Behavior, run_streaming
from specpair.server.running_calls import RunningCalls
from specpair.server.streams import DrainableRequests

ABORT_SECONDS = 1.0
"""How long a call waits for its status to be sent. The status waits after data that the client has not read."""

logger = logging.getLogger(__name__)

Error = TypeVar("Error", bound=BaseException)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns a SpecpairError into its status, and any other error into INTERNAL; only the log has its text.

    It also tracks the calls under way, refuses new ones while the server drains, and ends calls whose client stopped
    reading. Handlers are coroutine functions or asynchronous generators. AbortError and CancelledError pass through:
    they belong to gRPC.
    """

    def __init__(self, most_calls: int) -> None:
        self.calls = RunningCalls(most_calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        self.calls.arrive()
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        read = lenient_calls if handler.stream_stream else lenient
        coders = (read(handler.request_deserializer, method), handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._guarded(handler.unary_unary, method), *coders)
        if handler.unary_stream:
            behavior = _streaming(handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(self._guarded(behavior, method), *coders)
        if handler.stream_stream:
            behavior = self._drainable(_streaming(handler.stream_stream))
            return grpc.stream_stream_rpc_method_handler(self._guarded(behavior, method), *coders)
        return grpc.stream_unary_rpc_method_handler(self._guarded(handler.stream_unary, method), *coders)

    def _guarded(self, behavior: Behavior, method: str) -> Behavior:
        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            with self.calls.running(method):
                try:
                    self.calls.check_open(method)
                    return await behavior(readable(request), context)
                except Exception as error:
                    await _abort(context, error, method)

        return handle

    def _drainable(self, behavior: Behavior) -> Behavior:
        async def handle(request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
            requests = DrainableRequests(request_iterator)
            with self.calls.drainable(requests):
                await behavior(requests, context)

        return handle


def _streaming(behavior: Behavior) -> Behavior:
    """Ends a streaming call whose client stops reading."""

    async def handle(request: Any, context: grpc.aio.ServicerContext) -> None:
        patience = asyncio.timeout(None)
        limited = LimitedContext(context, patience)
        try:
            async with patience:
                await run_streaming(behavior, request, limited)
        except TimeoutError:
            if patience.expired():
                raise ClientStalledError(STALLED_SECONDS) from None
            raise
        finally:
            limited.end()

    return handle


async def _abort(context: grpc.aio.ServicerContext, error: Exception, method: str) -> None:
    """Ends the call with the status of an error, or as cancelled if the client is gone."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if _first(error, grpc.aio.BaseError) is not None:
        raise asyncio.CancelledError from error  # gRPC's own: the client is gone, or the server has stopped
    known = _first(error, ClientStalledError) or error
    if isinstance(known, ClientStalledError):
        logger.warning("a call was ended: %s", known.message, extra={"method": method})
    elif not isinstance(known, SpecpairError):
        logger.error("a call failed", exc_info=error, extra={"method": method})
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await abort(context, rich_status(known if isinstance(known, SpecpairError) else internal_error()))
    except grpc.aio.AbortError:
        raise
    except (grpc.aio.BaseError, TimeoutError):
        raise asyncio.CancelledError from error


def _first(error: BaseException, kind: type[Error]) -> Error | None:
    """The error if it is of the kind, else the first such error in an exception group."""
    if isinstance(error, kind):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for one in inner if (found := _first(one, kind)) is not None), None)


class LimitedContext:
    """A ServicerContext whose writes have a timeout. A write waits while the client's buffers are full.

    A write only notes when it began, and one timer looks whether the present one is too old: a timer for each would
    cost as much as the rest of a small write.
    """

    def __init__(self, context: grpc.aio.ServicerContext, patience: asyncio.Timeout):
        """`patience` is around the whole call."""
        self._context = context
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._writing_since: float | None = None
        """None while nothing is written."""
        self._look: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Ends the call if it takes STALLED_SECONDS."""
        self._writing_since = self._loop.time()
        if self._look is None and not self._patience.expired():
            self._look = self._loop.call_later(STALLED_SECONDS, self._end_if_stalled)
        try:
            await self._context.write(message)
        finally:
            self._writing_since = None

    def end(self) -> None:
        """The call has ended."""
        if self._look is not None:
            self._look.cancel()

    def _end_if_stalled(self) -> None:
        self._look = None
        if self._writing_since is None or self._patience.expired():
            return
        left = self._writing_since + STALLED_SECONDS - self._loop.time()
        if left > 0.0:
            self._look = self._loop.call_later(left, self._end_if_stalled)
        else:
            self._patience.reschedule(self._loop.time())
