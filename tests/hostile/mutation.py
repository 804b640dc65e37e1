"""Bytes that were a message once."""

from collections.abc import Callable
from random import Random

MOST_BYTES = 8 * 1024 * 1024
"""Of what changes make of a message: enough for lists that grow, and far below what is refused for its size alone."""
_WIRE_TYPES = range(8)


def mutate(random: Random, data: bytes) -> bytes:
    """One or several changes."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        data = random.choice(_CHANGES)(random, data)
    return data


def _truncate(random: Random, data: bytes) -> bytes:
    return data[: random.randint(0, len(data))]


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(random: Random, data: bytes) -> bytes:
    place, length = random.randint(0, len(data)), random.randint(1, 8)
    return (
        data[:place]
        + random.choice([random.randbytes(length), b"\xff" * length, bytes(length)])
        + data[place + length :]
    )


def _insert(random: Random, data: bytes) -> bytes:
    place = random.randint(0, len(data))
    return data[:place] + unknown_field(random) + data[place:]


def _append(random: Random, data: bytes) -> bytes:
    return data + unknown_field(random)


def _repeat(random: Random, data: bytes) -> bytes:
    """The same fields again: the last one of a oneof counts, lists grow."""
    return data * min(random.choice([2, 3, 50]), max(1, MOST_BYTES // max(1, len(data))))


def _remove(random: Random, data: bytes) -> bytes:
    place = random.randint(0, len(data))
    return data[:place] + data[place + random.randint(1, 8) :]


_CHANGES: list[Callable[[Random, bytes], bytes]] = [_truncate, _flip, _overwrite, _insert, _append, _repeat, _remove]


def unknown_field(random: Random) -> bytes:
    """A field of any number and wire type, whose length may be a lie."""
    number = random.choice([1, 2, 3, 15, 16, 21, 999, 2**29 - 1, 0])
    wire_type = random.choice(_WIRE_TYPES)
    length = random.choice([0, 1, 10, 127, 2**31 - 1, 2**63])
    payload = random.randbytes(random.randint(0, 12))
    return varint(number << 3 | wire_type) + (varint(length) if wire_type == 2 else b"") + payload


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


def noise(random: Random) -> bytes:
    """Bytes that were never a message, or look a little like one."""
    if random.random() < 0.05:
        return bytes([random.randrange(1, 16) << 3 | 3]) * random.choice([10, 200, 20_000])  # groups within groups
    if random.random() < 0.5:
        return random.randbytes(random.choice([0, 1, 2, 8, 64, 1000]))
    return b"".join(unknown_field(random) for _ in range(random.randint(1, 8)))
