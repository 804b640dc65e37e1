"""Metrics of a gRPC server's calls, with the names and labels of go-grpc-middleware."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio
from prometheus_client import Counter, Histogram
from prometheus_client.registry import CollectorRegistry

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Go's default buckets, extended below for calls of small models and above for streams."""
METHOD_LABELS = ("grpc_type", "grpc_service", "grpc_method")
CODES = {code: "".join(word.capitalize() for word in code.name.split("_")) for code in grpc.StatusCode} | {
    grpc.StatusCode.OK: "OK",
    grpc.StatusCode.CANCELLED: "Canceled",
}
"""Status codes as Go writes them."""
CODE_OF_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class Method(NamedTuple):
    """The labels of one method."""

    type: str
    service: str
    name: str


class RpcMetrics:
    """Counters for all calls of one server."""

    def __init__(self, registry: CollectorRegistry):
        self._started = Counter(
            "grpc_server_started_total", "RPCs started on the server.", METHOD_LABELS, registry=registry
        )
        self._handled = Counter(
            "grpc_server_handled_total",
            "RPCs completed on the server, with any status.",
            (*METHOD_LABELS, "grpc_code"),
            registry=registry,
        )
        self._received = Counter(
            "grpc_server_msg_received_total",
            "Messages received by the server; on a hot stream one message may hold several calls.",
            METHOD_LABELS,
            registry=registry,
        )
        self._sent = Counter(
            "grpc_server_msg_sent_total", "Messages sent by the server.", METHOD_LABELS, registry=registry
        )
        self._handling = Histogram(
            "grpc_server_handling_seconds",
            "Time from the start of an RPC to its end; for a stream its whole duration.",
            METHOD_LABELS,
            buckets=BUCKETS,
            registry=registry,
        )

    def begin(self, method: Method) -> "CallMetrics":
        """Counts the start of a call."""
        self._started.labels(*method).inc()
        return CallMetrics(self, method)

    def end(self, method: Method, code: grpc.StatusCode, seconds: float) -> None:
        """Counts the end of a call."""
        self._handled.labels(*method, CODES[code]).inc()
        self._handling.labels(*method).observe(seconds)

    def received(self, method: Method) -> Counter:
        """The counter for a method's incoming messages."""
        return self._received.labels(*method)

    def sent(self, method: Method) -> Counter:
        """The counter for a method's outgoing messages."""
        return self._sent.labels(*method)


class CallMetrics:
    """One call under way."""

    def __init__(self, metrics: RpcMetrics, method: Method):
        self.received = metrics.received(method)
        self.sent = metrics.sent(method)
        self._metrics = metrics
        self._method = method
        self._start = time.perf_counter()

    def end(self, code: grpc.StatusCode) -> None:
        self._metrics.end(self._method, code, time.perf_counter() - self._start)


class MetricsInterceptor(grpc.aio.ServerInterceptor):
    """Counts the calls of known methods. Unknown method names do not become labels.

    Must be the outermost interceptor: it reads the status that the others set for an error.
    """

    def __init__(self, metrics: RpcMetrics, find: Callable[[str], grpc.RpcMethodHandler | None]):
        """`find` returns the handler of `/package.Service/Method`. Its kind (unary or stream) holds for refused calls
        too."""
        self._metrics = metrics
        self._find = find

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        known = self._find(handler_call_details.method)
        if handler is None or known is None:
            return handler
        make_handler, behavior = _parts(handler)
        method = method_of(handler_call_details.method, known)
        counted = self._counted(method, behavior, has_request_stream=handler.request_streaming)
        return make_handler(counted, handler.request_deserializer, handler.response_serializer)

    def _counted(
        self, method: Method, behavior: Callable[[Any, Any], Awaitable[Any]], *, has_request_stream: bool
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            call = self._metrics.begin(method)
            code = grpc.StatusCode.UNKNOWN
            try:
                if has_request_stream:
                    request = CountedRequests(request, call.received)
                else:
                    call.received.inc()
                response = await behavior(request, CountingContext(context, call.sent))
                if response is not None:
                    call.sent.inc()
                code = code_of(context)
                return response
            except asyncio.CancelledError:
                code = code_of_cancelled(context)
                raise
            except Exception:  # the inner interceptors have set its status
                code = code_of(context, failed=True)
                raise
            finally:
                call.end(code)

        return handle


class CountingContext:
    """A ServicerContext that counts written messages."""

    def __init__(self, context: grpc.aio.ServicerContext, sent: Counter):
        self._context = context
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        await self._context.write(message)
        self._sent.inc()


class CountedRequests:
    """The requests of a stream, counted as they arrive."""

    def __init__(self, requests: AsyncIterator[Any], received: Counter):
        self._requests = requests
        self._received = received

    def __aiter__(self) -> "CountedRequests":
        return self

    async def __anext__(self) -> Any:
        request = await self._requests.__anext__()
        self._received.inc()
        return request


def method_of(path: str, handler: grpc.RpcMethodHandler) -> Method:
    """The labels of `/package.Service/Method`."""
    service, _, name = path.removeprefix("/").rpartition("/")
    types = {(False, False): "unary", (True, False): "client_stream", (False, True): "server_stream"}
    return Method(types.get((handler.request_streaming, handler.response_streaming), "bidi_stream"), service, name)


def code_of(context: grpc.aio.ServicerContext, *, failed: bool = False) -> grpc.StatusCode:
    """The status that was set; if none was set OK, or UNKNOWN after an error."""
    code: Any = context.code()
    known = code if isinstance(code, grpc.StatusCode) else CODE_OF_NUMBER.get(code or 0, grpc.StatusCode.UNKNOWN)
    return grpc.StatusCode.UNKNOWN if failed and known is grpc.StatusCode.OK else known


def code_of_cancelled(context: grpc.aio.ServicerContext) -> grpc.StatusCode:
    """DEADLINE_EXCEEDED if the caller's deadline has passed, else CANCELLED."""
    remaining = context.time_remaining()
    is_late = remaining is not None and remaining <= 0
    return grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED


def _parts(handler: Any) -> tuple[Callable[..., Any], Callable[[Any, Any], Awaitable[Any]]]:
    """The constructor for a handler of this kind, and its behavior (a coroutine function, after inner interceptors)."""
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler, handler.unary_unary
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    if handler.stream_stream:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    return grpc.stream_unary_rpc_method_handler, handler.stream_unary
