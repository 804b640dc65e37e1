"""The one place where exceptions of handlers become statuses."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from specpair.errors import SpecpairError
from specpair.rpc.status import abort, internal_error, rich_status
from specpair.rpc.streams import DrainableRequests

logger = logging.getLogger(__name__)

Behavior = Callable[[Any, grpc.aio.ServicerContext], Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns a SpecpairError into its status, and any other error into INTERNAL, logged here and told to nobody.

    It also ends the requests of open streams when the server drains. Handlers are coroutine functions or
    asynchronous generators. AbortError and CancelledError pass: they belong to gRPC.
    """

    def __init__(self) -> None:
        self._open_streams: set[DrainableRequests[Any]] = set()
        self._draining = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        coders = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(_guard_unary(handler.unary_unary, method), *coders)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(_guard_stream(handler.unary_stream, method), *coders)
        if handler.stream_stream:
            behavior = self._drainable(handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(_guard_stream(behavior, method), *coders)
        return grpc.stream_unary_rpc_method_handler(_guard_unary(handler.stream_unary, method), *coders)

    def drain(self) -> None:
        """Ends the requests of all open streams; what was read before is still answered."""
        self._draining = True
        for requests in tuple(self._open_streams):
            requests.drain()

    def _drainable(self, behavior: Behavior) -> Behavior:
        async def handle(request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
            requests = DrainableRequests(request_iterator)
            self._open_streams.add(requests)
            try:
                if self._draining:
                    requests.drain()
                await _run_stream(behavior, requests, context)
            finally:
                self._open_streams.discard(requests)

        return handle


def _guard_unary(behavior: Behavior, method: str) -> Behavior:
    async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await behavior(request, context)
        except Exception as error:
            await _abort(context, error, method)

    return handle


def _guard_stream(behavior: Behavior, method: str) -> Behavior:
    async def handle(request: Any, context: grpc.aio.ServicerContext) -> None:
        try:
            await _run_stream(behavior, request, context)
        except Exception as error:
            await _abort(context, error, method)

    return handle


async def _run_stream(behavior: Behavior, request: Any, context: grpc.aio.ServicerContext) -> None:
    """Runs a handler of either kind: one that writes to the context, or an asynchronous generator."""
    running = behavior(request, context)
    if not hasattr(running, "__aiter__"):
        await running
        return
    async with aclosing(running) as responses:
        async for response in responses:
            await context.write(response)


async def _abort(context: grpc.aio.ServicerContext, error: Exception, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, SpecpairError):
        logger.error("a call failed", exc_info=error, extra={"method": method})
        error = internal_error()
    await abort(context, rich_status(error))
