"""Calls in the name of a client."""

from collections.abc import Iterator
from contextlib import contextmanager

from specpair.server.identity import client_name, name_client


@contextmanager
def calling_as(name: str) -> Iterator[None]:
    """Sets the client inside the context."""
    before = client_name()
    name_client(name)
    try:
        yield
    finally:
        name_client(before)
