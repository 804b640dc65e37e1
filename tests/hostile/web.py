"""HTTP as bytes on a socket: nothing between what a case sends and what the server reads."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.hostile.verdicts import HTTP_CLOSED, HTTP_OPEN

PATIENCE = 120.0
_HEADS = re.compile(rb"(?:^|(?<=[\r\n}]))HTTP/1\.[01] (\d{3}) ")


@dataclass(frozen=True)
class WebReply:
    """All bytes received."""

    data: bytes
    has_ended: bool = True
    """Whether the server closed the connection, or that was not waited for."""

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Verdict and text of each answer; without one whether the connection ended."""
        heads = list(_HEADS.finditer(self.data))
        ends = [*(head.start() for head in heads[1:]), len(self.data)] if heads else []
        parts = [(f"HTTP {int(head[1])}", self.data[head.start() : end]) for head, end in zip(heads, ends, strict=True)]
        nothing = HTTP_CLOSED if self.has_ended else HTTP_OPEN
        return [(verdict, part.decode(errors="replace")) for verdict, part in parts] or [(nothing, self.text)]

    @property
    def verdicts(self) -> list[str]:
        return [verdict for verdict, _ in self.answers]

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    @property
    def body(self) -> bytes:
        """Of the only answer."""
        return self.data.partition(b"\r\n\r\n")[2]


def post(path: str, body: bytes | Any, *headers: str) -> bytes:
    """A whole request after whose answer the connection ends; what is no bytes becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "connection: close", "content-type: application/json"]
    return "\r\n".join([*lines, *headers, f"content-length: {len(data)}", "", ""]).encode() + data


async def exchange(
    address: str,
    pieces: Sequence[bytes],
    *,
    pause: float = 0.0,
    patience: float = PATIENCE,
    half_close: bool = False,
    leave: bool = False,
) -> WebReply:
    """Sends the pieces and reads until the server closes, or for `patience`. With `leave` it goes without reading."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data, has_ended = b"", True
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if half_close and writer.can_write_eof():
            writer.write_eof()
        if not leave:
            data, has_ended = await _read_all(reader, patience)
    except OSError:
        pass  # the server had enough of it
    finally:
        writer.close()
    return WebReply(data, has_ended)


async def _read_all(reader: asyncio.StreamReader, patience: float) -> tuple[bytes, bool]:
    """What comes, and whether it came to an end."""
    data = bytearray()
    try:
        async with asyncio.timeout(patience):
            while piece := await reader.read(65536):
                data += piece
    except ConnectionError:
        pass
    except TimeoutError:
        return bytes(data), False
    return bytes(data), True
