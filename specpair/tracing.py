"""OpenTelemetry traces across client, coordinator, draft and target.

Tracing is off outside `tracing`: no spans are made or sent. The SDK reads its own OTEL_* variables. A trace passes
between processes as a W3C traceparent: in the metadata of unary calls and requests, and in each call on a hot stream,
because calls of many requests share one message.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, Token
from typing import Any, Literal, Protocol

from specpair.errors import NotSupportedError, SpecpairError

MAX_TRACE_CONTEXT_LENGTH = 55
"""Characters of a traceparent; longer values are ignored."""
TRACEPARENT = "traceparent"

SpanKind = Literal["internal", "server", "client"]
Attribute = str | int | float | bool


_trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)


def current_trace_id() -> str | None:
    """32 hexadecimal digits; None outside a trace. Tasks inherit it from the task that creates them."""
    return _trace_id.get()


def set_trace_id(trace_id: str | None) -> Token[str | None]:
    """Sets the trace id for the rest of this task, or until `reset_trace_id`."""
    return _trace_id.set(trace_id)


def reset_trace_id(token: Token[str | None]) -> None:
    """Restores the trace id from before the `set_trace_id` that returned this token."""
    _trace_id.reset(token)


class Span(Protocol):
    """One timed operation of a trace."""

    def set(self, **attributes: Attribute) -> None:
        """Sets attributes; their names get the prefix `specpair.`."""


class OpenSpan(Span, Protocol):
    """A span that ends when it is told to."""

    def end(self) -> None: ...


class _NoSpan:
    """The span while tracing is off."""

    def set(self, **attributes: Attribute) -> None:
        pass

    def end(self) -> None:
        pass


class _Recorded:
    """A span of the SDK."""

    def __init__(self, span: Any):
        self._span = span

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes({f"specpair.{name}": value for name, value in attributes.items()})

    def end(self) -> None:
        self._span.end()


_NO_SPAN = _NoSpan()
_OFF: AbstractContextManager[Span] = nullcontext(_NO_SPAN)

_tracer: Any = None
"""None while tracing is off."""
_context: ContextVar[Any] = ContextVar("tracing_context", default=None)
"""OpenTelemetry's context with the current span. Not OpenTelemetry's own variable: a span around an asynchronous
generator may end in another context than it began in, which OpenTelemetry logs as an error."""


@contextmanager
def tracing(service: str, exporter: Any = None) -> Iterator[None]:
    """Turns tracing on inside the context, and sends the remaining spans at the end.

    `service` names the process unless OTEL_SERVICE_NAME is set. The default `exporter` is OTLP over gRPC.
    Raises NotSupportedError where OpenTelemetry is not installed.
    """
    global _tracer
    provider = _provider(service, exporter)
    _tracer = provider.get_tracer("specpair")
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


def span(name: str, kind: SpanKind = "internal", **attributes: Attribute) -> AbstractContextManager[Span]:
    """A child of the current span; it is the current span inside the context."""
    return _OFF if _tracer is None else _recording(name, kind, attributes)


def open_span(name: str, **attributes: Attribute) -> OpenSpan:
    """A child of the current span, for work in the background: it never is the current span."""
    if _tracer is None:
        return _NO_SPAN
    from opentelemetry.context import Context

    recorded = _Recorded(_tracer.start_span(name, context=_context.get() or Context()))
    recorded.set(**attributes)
    return recorded


def continued(trace_context: str) -> AbstractContextManager[object]:
    """Inside the context, spans belong to the caller's trace; to none if `trace_context` is not a traceparent."""
    if _tracer is None or not trace_context:
        return _OFF
    return _continuing(trace_context)


def trace_context() -> str:
    """The current span as a traceparent; empty without one."""
    if _tracer is None or (context := _context.get()) is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier.get(TRACEPARENT, "")


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """The current span as metadata of a gRPC call; empty without one."""
    current = trace_context()
    return ((TRACEPARENT, current),) if current else ()


def trace_context_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The traceparent in the metadata of a gRPC call; empty without one."""
    values = (value for key, value in metadata or () if key == TRACEPARENT and isinstance(value, str))
    return next(values, "")


@contextmanager
def _recording(name: str, kind: SpanKind, attributes: dict[str, Attribute]) -> Iterator[Span]:
    from opentelemetry import trace
    from opentelemetry.context import Context

    parent = _context.get()
    made = _tracer.start_span(name, context=parent or Context(), kind=trace.SpanKind[kind.upper()])
    recorded = _Recorded(made)
    recorded.set(**attributes)
    context = made.get_span_context()
    token = _context.set(trace.set_span_in_context(made, Context()))
    id_token = set_trace_id(format(context.trace_id, "032x") if context.trace_flags.sampled else None)
    try:
        yield recorded
    except Exception as error:
        reason = error.reason if isinstance(error, SpecpairError) else type(error).__name__
        made.set_status(trace.Status(trace.StatusCode.ERROR, reason))
        raise
    finally:
        made.end()
        with suppress(ValueError):  # an asynchronous generator may be closed in another context
            reset_trace_id(id_token)
            _context.reset(token)


@contextmanager
def _continuing(traceparent: str) -> Iterator[None]:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {TRACEPARENT: traceparent} if len(traceparent) <= MAX_TRACE_CONTEXT_LENGTH else {}
    token = _context.set(TraceContextTextMapPropagator().extract(carrier, Context()))
    try:
        yield
    finally:
        with suppress(ValueError):
            _context.reset(token)


def _provider(service: str, exporter: Any) -> Any:
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ModuleNotFoundError as error:
        raise NotSupportedError(f"traces need {error.name}: install specpair[otel]") from None
    resource = Resource.create({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
