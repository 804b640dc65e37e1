"""Writing to a client that may have stopped reading."""

import asyncio
from typing import Any

import grpc.aio

from specpair.errors import ClientStalledError
from specpair.server.config import STALLED_SECONDS


class LimitedContext:
    """A ServicerContext whose writes have an end. A write waits as long as the client's buffers are full."""

    def __init__(self, context: grpc.aio.ServicerContext):
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Raises ClientStalledError after STALLED_SECONDS."""
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._context.write(message)
        except TimeoutError:
            raise ClientStalledError(STALLED_SECONDS) from None
