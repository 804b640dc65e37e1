"""Messages with fields at their extremes, from the descriptors: new fields are attacked as soon as they exist."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.hostile.limits import MAX_ID_LENGTH, MAX_LENGTH, MAX_PROPOSED, VOCABULARY

_UNSIGNED = [
    0,
    1,
    2,
    3,
    MAX_PROPOSED,
    MAX_LENGTH,
    MAX_LENGTH - 1,
    VOCABULARY - 1,
    VOCABULARY,
    2**31 - 1,
    2**31,
    2**32 - 1,
]
_SIGNED = [0, 1, -1, 2, -2, VOCABULARY, 2**31 - 1, -(2**31)]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 100.0, 100.001, 1e-45, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan]
TEXTS = [
    "",
    "a",
    "\x00",
    "\n\r\t\x1b[31m",
    "x" * MAX_ID_LENGTH,
    "x" * (MAX_ID_LENGTH + 1),
    "é" * 64,
    "\U0001f600" * 300,
    "\u202e\u2066evil",
    "{{ 7 * 7 }}{% raw %}",
    "<script>alert(1)</script>",
    "' OR 1=1; --",
    "%s%n%x{0}{}",
    "user",
    "<|im_end|>",
]
_COUNTS = [0, 1, 2, 3, MAX_PROPOSED, MAX_PROPOSED + 1, MAX_LENGTH, 129, 1025]
_HUGE_COUNT = 20_000
_HUGE_TEXT = 100_000
_RARE = 0.03
MOST_DEPTH = 5


def value_of(random: Random, field: FieldDescriptor) -> Any:
    """Of a field that is not a message."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice([0, 1, 2, 3, 7, 99, -1, 2**31 - 1])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.choice([0, 1, 3, 4, 8, 64, 4096]))
    return _MAKERS[field.cpp_type](random)


_MAKERS: dict[int, Callable[[Random], Any]] = {
    FieldDescriptor.CPPTYPE_UINT32: lambda random: random.choice(_UNSIGNED),
    FieldDescriptor.CPPTYPE_UINT64: lambda random: random.choice([*_UNSIGNED, 2**63, 2**64 - 1]),
    FieldDescriptor.CPPTYPE_INT32: lambda random: random.choice(_SIGNED),
    FieldDescriptor.CPPTYPE_INT64: lambda random: random.choice([*_SIGNED, 2**63 - 1, -(2**63)]),
    FieldDescriptor.CPPTYPE_FLOAT: lambda random: random.choice(_FLOATS),
    FieldDescriptor.CPPTYPE_DOUBLE: lambda random: random.choice([*_FLOATS, 1e308, -1e308]),
    FieldDescriptor.CPPTYPE_BOOL: lambda random: random.random() < 0.5,
    FieldDescriptor.CPPTYPE_STRING: lambda random: (
        "x" * _HUGE_TEXT if random.random() < _RARE else random.choice(TEXTS)
    ),
}


def disturb(random: Random, message: Message, depth: int = 0) -> None:
    """Puts one field of the message, or of a message within it, to an extreme."""
    field: Any = random.choice(message.DESCRIPTOR.fields)
    if is_map(field):
        fill_map(random, message, field)
    elif field.is_repeated:
        disturb_list(random, message, field, depth)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        disturb_inner(random, message, field, depth)
    elif random.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, value_of(random, field))


def disturb_inner(random: Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    """Clears a message, sets it empty, or changes a field of it."""
    inner = getattr(message, field.name)
    choice = random.random()
    if choice < 0.1:
        message.ClearField(field.name)
    elif choice < 0.2 or depth >= MOST_DEPTH or not inner.DESCRIPTOR.fields:
        inner.SetInParent()
    else:
        inner.SetInParent()
        disturb(random, inner, depth + 1)


def disturb_list(random: Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    """Makes a list another length, or changes one of its entries."""
    entries = getattr(message, field.name)
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if entries and random.random() < 0.8:
            disturb(random, random.choice(entries), depth + 1)
        elif random.random() < 0.5:
            message.ClearField(field.name)
        else:
            for _ in range(random.choice([1, 2, 50])):
                entries.add()
        return
    if entries and random.random() < 0.5:
        entries[random.randrange(len(entries))] = value_of(random, field)
        return
    count = _HUGE_COUNT if random.random() < _RARE else random.choice(_COUNTS)
    value = value_of(random, field)
    count = min(count, 64) if isinstance(value, str) else count
    entries[:] = [value] * count


def fill_map(random: Random, message: Message, field: FieldDescriptor) -> None:
    assert field.message_type is not None
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    entries = getattr(message, field.name)
    for _ in range(random.choice([1, 2, 1025])):
        entries[random.randrange(2**32) if random.random() < 0.3 else value_of(random, key)] = value_of(random, value)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
