"""Ends answers to clients that do not read."""

import asyncio
import logging
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.server.config import STALLED_SECONDS
from specpair.server.http_server import CUT

PIECE_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class StalledClients:
    """ASGI middleware: disconnects a client that reads nothing for STALLED_SECONDS and ends its work.

    A part of an answer waits while earlier parts fill the client's buffers.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        loop, patience = asyncio.get_running_loop(), asyncio.timeout(None)

        async def send_in_time(message: Message) -> None:
            for piece in pieces_of(message):
                patience.reschedule(loop.time() + STALLED_SECONDS)
                try:
                    await send(piece)
                finally:
                    if not patience.expired():
                        patience.reschedule(None)

        try:
            async with patience:
                await self._app(scope, receive, send_in_time)
        except TimeoutError:
            if not patience.expired():
                raise
            logger.warning("a client was disconnected: it read nothing for %g s", STALLED_SECONDS)
            scope["state"][CUT]()


def pieces_of(message: Message) -> Iterator[Message]:
    """The message with its body in pieces: each waits for the earlier ones. A body in one piece would not wait, and
    could stay in memory for as long as the client does not read."""
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        yield message
        return
    for start in range(0, len(body), PIECE_BYTES):
        rest = message.get("more_body", False) or start + PIECE_BYTES < len(body)
        yield {**message, "body": body[start : start + PIECE_BYTES], "more_body": rest}
