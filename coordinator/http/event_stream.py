"""Server-sent events: each chunk as it comes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coordinator.http.answer import Answer
from coordinator.http.disconnects import ClientGoneError, unless_gone
from coordinator.http.failures import failure_body, failure_response
from coordinator.http.json_pieces import encode
from coordinator.http.parameter_names import Names

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store", "x-accel-buffering": "no"}

Chunks = AsyncGenerator[dict[str, Any], None]


class EventStream(Response):
    """Sends chunks until they end or the client disconnects; then closes them.

    A failure before the first chunk is an ordinary answer with its own status; a later one is the last chunk. The next
    chunk is generated after the previous one is sent, so a client that does not read blocks the work.
    """

    def __init__(self, chunks: Chunks, answer: Answer, stop: asyncio.Event, names: Names):
        """The chunks are those of `answer`. `stop` ends the stream with an error, which names parameters by `names`."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]  # unknown
        self._chunks = chunks
        self._answer = answer
        self._stop = stop
        self._names = names
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._stop, self._send_chunks(send))
        except ClientGoneError:
            return
        except Exception as error:
            if not self._has_started:
                return await failure_response(error, self._names)(scope, receive, send)
            chunk = self._answer.failed(*failure_body(error, self._names))
            await send({"type": "http.response.body", "body": await event_of(chunk), "more_body": True})
        await send({"type": "http.response.body", "body": self._answer.stream_end, "more_body": False})

    async def _send_chunks(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                if not self._has_started:
                    self._has_started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": await event_of(chunk), "more_body": True})


async def event_of(chunk: dict[str, Any]) -> bytes:
    """A chunk as an event. One with a type, as those of responses, says it in a line of its own too."""
    kind = f"event: {chunk['type']}\n".encode() if "type" in chunk else b""
    return kind + b"data: " + await encode(chunk) + b"\n\n"
