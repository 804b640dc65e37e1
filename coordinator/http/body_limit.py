"""A limit on the size of request bodies."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_SECONDS = 30.0
"""Timeout of each piece of a body, and of discarding one that is too large."""
DISCARDED_FACTOR = 8
"""Up to this multiple of the limit is read and discarded: a client that is still sending would not see the answer."""


class BodyLimit:
    """ASGI middleware: reading a body that is too large raises an HTTPException with status 413."""

    def __init__(self, app: ASGIApp, max_bytes: int):
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = Headers(scope=scope).get("content-length", "")
        is_too_large = declared.isdecimal() and int(declared[:20]) > self._max_bytes
        length = 0
        is_complete = False

        async def receive_some() -> Message:
            nonlocal length, is_complete
            try:
                message = await asyncio.wait_for(receive(), None if is_complete else BODY_SECONDS)
            except TimeoutError:
                raise HTTPException(408, f"the body did not come within {BODY_SECONDS:g} s") from None
            is_complete = not message.get("more_body")
            length += len(message.get("body", b""))
            if message["type"] == "http.request" and (is_too_large or length > self._max_bytes):
                await self._discard(message, receive)
                raise HTTPException(413, f"the body is too large; at most {self._max_bytes} bytes are taken")
            return message

        await self._app(scope, receive_some, send)

    async def _discard(self, message: Message, receive: Receive) -> None:
        length = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(BODY_SECONDS):
                while message.get("more_body") and length < DISCARDED_FACTOR * self._max_bytes:
                    message = await receive()
                    length += len(message.get("body", b""))
