"""The name of the calling client: set when a call arrives, read for quotas and for the owners of sequences."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ANONYMOUS = ""
"""The name of a client that was not authenticated."""

_client: ContextVar[str] = ContextVar("client", default=ANONYMOUS)


def client_name() -> str:
    """The client whose call the current task serves. Tasks inherit it from the task that creates them."""
    return _client.get()


def name_client(name: str) -> None:
    """Sets the client for the rest of the current task. A server does so at the beginning of each call."""
    _client.set(name)


@contextmanager
def calling_as(name: str) -> Iterator[None]:
    """Sets the client inside the context, as in tests."""
    token = _client.set(name)
    try:
        yield
    finally:
        _client.reset(token)
