"""Bytes that are no message of the method's type.

gRPC reads a message before it asks any handler, and answers what cannot be read with UNKNOWN and the text of the
exception, which names classes. So here it is read as a mark, and refused as any other bad input.
"""

from collections.abc import Callable
from typing import Any

from specpair.errors import InvalidFieldError

UNREADABLE = object()
"""In the place of a message."""


def lenient(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Reads as `deserialize` does, and gives UNREADABLE where that fails. None leaves the bytes as they are."""
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # DecodeError, and whatever else the bytes of a stranger provoke
            return UNREADABLE

    return read


def readable(message: Any) -> Any:
    """The message. Raises InvalidFieldError for UNREADABLE."""
    if message is UNREADABLE:
        raise InvalidFieldError("request", "is no message of the type that this method takes")
    return message
