"""Lets go of a message as soon as its call has ended.

gRPC keeps the exception that aborts a call at the call, and the exception keeps what its traceback came through: the
call, and the message. Python's collector finds such a circle only after many more objects, and then it may hold
gigabytes: a message has up to 64 MiB, several times that once decoded, and refusing one makes few objects.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from specpair.server.handlers import Behavior, with_behavior


class ReleasingInterceptor(grpc.aio.ServerInterceptor):
    """Ends failed calls with an exception that keeps nothing. Must be outermost, so that none is added to it again."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        return with_behavior(handler, _closing if handler.request_streaming else _releasing)


def _releasing(behavior: Behavior) -> Behavior:
    async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await behavior(request, context)
        except grpc.aio.AbortError as aborted:
            aborted.__context__ = None  # the error that it was made for
            raise aborted.with_traceback(None) from None
        finally:
            del request, context  # this function stays in the traceback

    return handle


def _closing(behavior: Behavior) -> Behavior:
    """For a stream of requests. gRPC's iterator over them, which refers to itself as well, keeps the last one."""

    async def handle(requests: Any, context: grpc.aio.ServicerContext) -> Any:
        async with aclosing(aiter(requests)):
            return await behavior(requests, context)

    return _releasing(handle)
