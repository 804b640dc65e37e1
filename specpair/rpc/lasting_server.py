"""A gRPC server that does not end before it is told to.

grpc.aio reads the path of every call in the one loop that all calls come through. A path that is no UTF-8 ends that
loop, and with it the server: its port is closed, its calls are cancelled, and the process lives on deaf (1.85.1).
Anyone who reaches the port can send such a call, and nothing of ours runs before it. So a new server takes the place of
the old one: what is served, sequences and caches, is not touched, and clients call again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import grpc.aio

REOPEN_SECONDS = 5.0
"""How long the port of the old server may take to get free."""
PAUSE_SECONDS = 0.02

logger = logging.getLogger(__name__)


class LastingServer:
    """One server after another, on one port."""

    def __init__(
        self,
        make: Callable[[], grpc.aio.Server],
        listen: Callable[[grpc.aio.Server, int | None], int],
        fail: Callable[[str], None],
    ):
        """`listen` has a server listen on a port, None for the configured one, and returns it; RuntimeError if it is
        taken. `fail` is told if no new server can be put in place."""
        self._make = make
        self._listen = listen
        self._fail = fail
        self._server = make()
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self) -> int:
        """Listens. Returns the port; raises RuntimeError."""
        port = self._listen(self._server, None)
        await self._server.start()
        self._keeper = asyncio.create_task(self._keep(port))
        return port

    async def stop(self, grace_seconds: float) -> None:
        """Running calls have so long to finish. May be called again, and before the start."""
        self._is_stopping = True
        with suppress(UnicodeDecodeError):  # a server that ended by itself says again why
            await self._server.stop(grace_seconds)
        if self._keeper is not None:
            await asyncio.wait([self._keeper])  # not cancelled: that would cancel what the server itself waits for

    async def _keep(self, port: int) -> None:
        while not self._is_stopping:
            try:
                await self._server.wait_for_termination()
                continue
            except Exception as error:
                logger.error("gRPC's server ended by itself (%s); a new one takes its place", error)
            try:
                async with asyncio.timeout(REOPEN_SECONDS):
                    await self._replace(port)
            except TimeoutError:
                return self._fail("its port is lost")
        await self._server.stop(0)  # one that was made meanwhile

    async def _replace(self, port: int) -> None:
        with suppress(Exception):  # what ended it
            await self._server.stop(0)
        while True:
            self._server = self._make()
            try:
                self._listen(self._server, port)
                break
            except RuntimeError:
                await asyncio.sleep(PAUSE_SECONDS)
        await self._server.start()
