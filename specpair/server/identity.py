"""The name of the calling client: set when a call arrives, read for quotas and for the owners of sequences."""

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
