"""Handlers of gRPC calls, for all four kinds of calls."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

Behavior = Callable[[Any, grpc.aio.ServicerContext], Any]


def with_behavior(handler: Any, change: Callable[[Behavior], Behavior]) -> Any:
    """A handler of the same kind whose behavior is changed by `change`."""
    coders = (handler.request_deserializer, handler.response_serializer)
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(change(handler.unary_unary), *coders)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(change(handler.unary_stream), *coders)
    if handler.stream_stream:
        return grpc.stream_stream_rpc_method_handler(change(handler.stream_stream), *coders)
    return grpc.stream_unary_rpc_method_handler(change(handler.stream_unary), *coders)


async def run_streaming(behavior: Behavior, request: Any, context: Any) -> None:
    """Runs the behavior of a call with a response stream: a coroutine that writes to the context, or an asynchronous
    generator."""
    running = behavior(request, context)
    if not hasattr(running, "__aiter__"):
        await running
        return
    async with aclosing(running) as responses:
        async for response in responses:
            await context.write(response)
