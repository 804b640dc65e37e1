"""Limits the open streams of one client: each holds memory and one of the server's calls for as long as it likes."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import prometheus_client
from prometheus_client.registry import CollectorRegistry

from specpair.errors import CapacityExhaustedError
from specpair.server.handlers import Behavior, run_streaming, with_behavior
from specpair.server.identity import client_name


class StreamQuota:
    """Counts the open streams of a server by client. Runs on the event loop."""

    def __init__(self, limit: int, registry: CollectorRegistry | None = None):
        """Counts open and refused streams in `registry`, if given."""
        self._limit = limit
        self._open: Counter[str] = Counter()
        self._open_gauge = prometheus_client.Gauge(
            "specpair_streams_open", "Open streams: hot streams and health watches.", registry=registry
        )
        self._refusals = prometheus_client.Counter(
            "specpair_stream_refusals",
            "Streams refused because their client had the most open that one client may have.",
            registry=registry,
        )
        self._open_gauge.set_function(self._open.total)

    @contextmanager
    def held(self, client: str) -> Iterator[None]:
        """Counts a stream of this client inside the context. Raises CapacityExhaustedError at the limit."""
        if self._open[client] >= self._limit:
            self._refusals.inc()
            words = f"{self._limit} streams of this client are open, the most that one may have"
            raise CapacityExhaustedError(words, limit=self._limit)
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


class StreamQuotaInterceptor(grpc.aio.ServerInterceptor):
    """Refuses streams, in either direction, beyond the quota. Must run after the interceptor that names the client."""

    def __init__(self, quota: StreamQuota):
        self._quota = quota

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        if handler is None or not (handler.request_streaming or handler.response_streaming):
            return handler
        return with_behavior(handler, self._held if handler.response_streaming else self._held_for_answer)

    def _held(self, behavior: Behavior) -> Behavior:
        async def handle(request: Any, context: grpc.aio.ServicerContext) -> None:
            with self._quota.held(client_name()):
                await run_streaming(behavior, request, context)

        return handle

    def _held_for_answer(self, behavior: Behavior) -> Behavior:
        """For a stream of requests that gets one answer."""

        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            with self._quota.held(client_name()):
                return await behavior(request, context)

        return handle
