"""Decodes messages, and refuses those that are too large, hold too many calls or cannot be read.

gRPC decodes a message on the event loop, before any handler runs. If that fails, gRPC answers UNKNOWN with the text of
the exception, which names classes. So an unreadable message is decoded as an Unreadable, and refused like other bad
input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specpair.errors import InvalidFieldError
from specpair.rpc.sizes import DISTRIBUTION_METHODS, MAX_MESSAGE_BYTES, MAX_PLAIN_BYTES, MAX_TOGETHER_CALLS

SMALL_BYTES = 16 * 1024
"""Messages up to this size are not counted: they cannot hold many fields, and most messages are this small."""

Deserializer = Callable[[bytes], Any]


@dataclass(frozen=True)
class Unreadable:
    """Takes the place of a message that cannot be read."""

    problem: str
    limit: int | None = None


def lenient(deserialize: Deserializer | None, method: str) -> Deserializer | None:
    """Wraps `deserialize`: gives an Unreadable if it fails, or if the message is too large for the method
    `/package.Service/Method`. None leaves the bytes as they are."""
    if deserialize is None:
        return None
    most = MAX_MESSAGE_BYTES if method in DISTRIBUTION_METHODS else MAX_PLAIN_BYTES

    def read(data: bytes) -> Any:
        if len(data) > most:
            return Unreadable(f"has {len(data)} bytes; at most {most} are read", most)
        try:
            return deserialize(data)
        except Exception:  # DecodeError, or anything else that bad bytes cause
            return Unreadable("is not a message of the type that this method takes")

    return read


def lenient_calls(deserialize: Deserializer | None, method: str) -> Deserializer | None:
    """Like `lenient`, for messages of several calls."""
    read = lenient(deserialize, method)
    if read is None:
        return None

    def read_calls(data: bytes) -> Any:
        if has_more_fields(data, MAX_TOGETHER_CALLS):
            return Unreadable(f"has too many calls; at most {MAX_TOGETHER_CALLS} are read", MAX_TOGETHER_CALLS)
        return read(data)

    return read_calls


def strict_answers(deserialize: Deserializer) -> Deserializer:
    """Wraps `deserialize` for messages of several answers. Raises ValueError for too many answers."""

    def read(data: bytes) -> Any:
        if has_more_fields(data, MAX_TOGETHER_CALLS):
            raise ValueError(f"more than {MAX_TOGETHER_CALLS} answers in a message")
        return deserialize(data)

    return read


def readable(message: Any) -> Any:
    """Returns the message. Raises InvalidFieldError for an Unreadable."""
    if isinstance(message, Unreadable):
        limit = {} if message.limit is None else {"limit": message.limit}
        raise InvalidFieldError("request", message.problem, **limit)
    return message


def has_more_fields(data: bytes, most: int) -> bool:
    """Whether a message has more than `most` fields at its top level, without decoding them.

    An empty call is two bytes on the wire and sixty once decoded: 60 MiB of them took 10 s and 2 GiB. False for small
    messages and for bytes that are not a message. True for groups, which none of our messages has.
    """
    if len(data) <= SMALL_BYTES:
        return False
    position = count = 0
    try:
        while position < len(data) and count <= most:
            tag, position = _varint(data, position)
            match tag & 7:
                case 0:
                    _, position = _varint(data, position)
                case 1:
                    position += 8
                case 2:
                    length, position = _varint(data, position)
                    position += length
                case 5:
                    position += 4
                case _:
                    return True
            count += 1
    except IndexError:
        return False
    return count > most


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it. Raises IndexError if the bytes end first."""
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position
