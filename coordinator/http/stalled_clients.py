"""An end for answers that nobody reads."""

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specpair.rpc.config import STALLED_SECONDS
from specpair.rpc.http_server import CUT

logger = logging.getLogger(__name__)


class StalledClients:
    """ASGI middleware: a client that takes nothing of its answer for so long is cut off, and its work ends.

    A part of an answer waits while those before it fill the client's buffers.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        loop, patience = asyncio.get_running_loop(), asyncio.timeout(None)

        async def send_in_time(message: Message) -> None:
            patience.reschedule(loop.time() + STALLED_SECONDS)
            try:
                await send(message)
            finally:
                if not patience.expired():
                    patience.reschedule(None)

        try:
            async with patience:
                await self._app(scope, receive, send_in_time)
        except TimeoutError:
            if not patience.expired():
                raise
            logger.warning("a client was cut off: it took nothing for %g s", STALLED_SECONDS)
            scope["state"][CUT]()
