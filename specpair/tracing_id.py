"""The trace that a request belongs to, if it has one."""

from contextvars import ContextVar, Token

_trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)


def current_trace_id() -> str | None:
    """32 hexadecimal digits; None outside a trace. Tasks inherit it from the task that makes them."""
    return _trace_id.get()


def set_trace_id(trace_id: str | None) -> Token[str | None]:
    """For the rest of this task; `reset_trace_id` takes it back."""
    return _trace_id.set(trace_id)


def reset_trace_id(token: Token[str | None]) -> None:
    """What it was before the `set_trace_id` that gave this token."""
    _trace_id.reset(token)
