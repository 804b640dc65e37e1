"""JSON in pieces, so that encoding a long document does not block the event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

LONG = 64
"""Rows that are made and encoded in one go: with 20 likely tokens each, some milliseconds."""

Row = TypeVar("Row")


class Rows:
    """A long list whose rows are made while they are encoded. It can be encoded once."""

    def __init__(self, rows: Iterable[Any]):
        self.rows = rows


def rows(made: Iterable[Row], source: Sequence[Any]) -> "list[Row] | Rows":
    """A list of `made`; Rows if the source it is made from is long."""
    return list(made) if len(source) <= LONG else Rows(made)


async def encode(document: dict[str, Any]) -> bytes:
    """The document as JSON. If it holds Rows, other tasks can run after every piece."""
    try:
        return _encode(document)  # nearly always: it holds no Rows
    except HasRowsError:
        return b"".join([piece async for piece in _in_turns(document)])


class HasRowsError(Exception):
    """The document cannot be encoded in one go."""


async def _in_turns(document: dict[str, Any]) -> AsyncIterator[bytes]:
    for piece in _pieces(document):
        yield piece
        await asyncio.sleep(0)


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, Rows):
        yield from _row_pieces(value)
        return
    try:
        yield _encode(value)
    except HasRowsError:
        yield from _dict_pieces(value) if isinstance(value, dict) else _list_pieces(value)


def _dict_pieces(value: dict[str, Any]) -> Iterator[bytes]:
    start = b"{"
    for key, entry in value.items():
        yield start + _encode(key) + b":"
        yield from _pieces(entry)
        start = b","
    yield b"}"


def _list_pieces(value: list[Any]) -> Iterator[bytes]:
    start = b"["
    for entry in value:
        yield start
        yield from _pieces(entry)
        start = b","
    yield b"]"


def _row_pieces(value: Rows) -> Iterator[bytes]:
    entries, start = iter(value.rows), b"["
    while some := list(islice(entries, LONG)):
        yield start + _encode(some)[1:-1]
        start = b","
    yield b"]" if start == b"," else b"[]"


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_refuse).encode()


def _refuse(value: Any) -> Any:
    if isinstance(value, Rows):
        raise HasRowsError
    raise TypeError(f"{type(value).__name__} is not JSON")
