"""From bytes to messages: what is too large, too many or no message at all is refused before it costs anything.

gRPC reads a message before it asks any handler, on the event loop, and answers what cannot be read with UNKNOWN and the
text of the exception, which names classes. So here it is read as a mark, and refused as any other bad input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specpair.errors import InvalidFieldError
from specpair.rpc.sizes import DISTRIBUTION_METHODS, MAX_MESSAGE_BYTES, MAX_PLAIN_BYTES, MAX_TOGETHER_CALLS

SMALL_BYTES = 16 * 1024
"""Up to this size nobody counts: there is not room for many fields, and most messages are as small."""

Deserializer = Callable[[bytes], Any]


@dataclass(frozen=True)
class Unreadable:
    """In the place of a message."""

    problem: str
    limit: int | None = None


def lenient(deserialize: Deserializer | None, method: str) -> Deserializer | None:
    """Reads as `deserialize` does, and gives an Unreadable where that fails or the message is larger than those of
    `/package.Service/Method` may be. None leaves the bytes as they are."""
    if deserialize is None:
        return None
    most = MAX_MESSAGE_BYTES if method in DISTRIBUTION_METHODS else MAX_PLAIN_BYTES

    def read(data: bytes) -> Any:
        if len(data) > most:
            return Unreadable(f"has {len(data)} bytes; at most {most} are read", most)
        try:
            return deserialize(data)
        except Exception:  # DecodeError, and whatever else the bytes of a stranger provoke
            return Unreadable("is no message of the type that this method takes")

    return read


def lenient_calls(deserialize: Deserializer | None, method: str) -> Deserializer | None:
    """As `lenient`, for messages of several calls."""
    read = lenient(deserialize, method)
    if read is None:
        return None

    def read_calls(data: bytes) -> Any:
        if has_more_fields(data, MAX_TOGETHER_CALLS):
            return Unreadable(f"has too many calls; at most {MAX_TOGETHER_CALLS} are read", MAX_TOGETHER_CALLS)
        return read(data)

    return read_calls


def strict_answers(deserialize: Deserializer) -> Deserializer:
    """Reads a message of several answers. Raises ValueError for too many."""

    def read(data: bytes) -> Any:
        if has_more_fields(data, MAX_TOGETHER_CALLS):
            raise ValueError(f"more than {MAX_TOGETHER_CALLS} answers in a message")
        return deserialize(data)

    return read


def readable(message: Any) -> Any:
    """The message. Raises InvalidFieldError for one that could not be read."""
    if isinstance(message, Unreadable):
        limit = {} if message.limit is None else {"limit": message.limit}
        raise InvalidFieldError("request", message.problem, **limit)
    return message


def has_more_fields(data: bytes, most: int) -> bool:
    """Whether a message has more than `most` fields at its top level, without reading what is in them.

    An empty call takes two bytes, and the message made of it sixty: 60 MiB of them took 10 s and 2 GiB. Of a small
    message, and of bytes that are none, nobody knows; groups, which no message of ours has, are too many.
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
    """A number and where it ends. Raises IndexError where the bytes end first."""
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position
