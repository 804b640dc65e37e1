"""Who is calling: set where a call comes in, read wherever it matters, such as for quotas and owners of sequences."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ANONYMOUS = ""
"""A client that nobody asked for its name."""

_client: ContextVar[str] = ContextVar("client", default=ANONYMOUS)


def client_name() -> str:
    """The client of the call that the current task works for; tasks inherit it from the one that starts them."""
    return _client.get()


def name_client(name: str) -> None:
    """For the rest of the current task: a server does so at the beginning of a call, whose task it is."""
    _client.set(name)


@contextmanager
def calling_as(name: str) -> Iterator[None]:
    """For what is done inside, as in tests."""
    token = _client.set(name)
    try:
        yield
    finally:
        _client.reset(token)
