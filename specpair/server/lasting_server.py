"""A gRPC server that does not end before it is told to.

grpc.aio reads the path of every call in the one loop that all calls come through. A path that is no UTF-8 ends that
loop, and with it the server: its port is closed, its calls are cancelled, and the process lives on deaf (1.85.1).
Anyone who reaches the port can send such a call, and nothing of ours runs before it. So a new server takes the place of
the old one: what is served, sequences and caches, is not touched, and clients call again. As long as the connection of
that call stays open, grpc.aio does not say that its server has ended; so the port is knocked at as well.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc.aio

REOPEN_SECONDS = 5.0
"""How long the port of the old server may take to get free."""
PAUSE_SECONDS = 0.02
KNOCK_SECONDS = 1.0
"""Between two looks whether the port is open, and at most for one, or for the end of a server that is deaf."""

logger = logging.getLogger(__name__)


class LastingServer:
    """One server after another, on one port of a host."""

    def __init__(
        self,
        make: Callable[[], grpc.aio.Server],
        listen: Callable[[grpc.aio.Server, int | None], int],
        fail: Callable[[str], None],
        host: str = "127.0.0.1",
    ):
        """`listen` has a server listen on a port, None for the configured one, and returns it; RuntimeError if it is
        taken. `fail` is told if no new server can be put in place."""
        self._make = make
        self._listen = listen
        self._fail = fail
        self._host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
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
            await self._until_deaf(port)
            if self._is_stopping:
                break
            logger.error("gRPC's server ended by itself; a new one takes its place")
            try:
                async with asyncio.timeout(REOPEN_SECONDS):
                    await self._replace(port)
            except TimeoutError:
                return self._fail("its port is lost")
            except Exception:
                logger.exception("no new server could be made")
                return self._fail("its port is lost")
        await self._server.stop(0)  # one that was made meanwhile

    async def _until_deaf(self, port: int) -> None:
        """Until the server has ended, told or not, or nobody answers at its port."""
        end = asyncio.ensure_future(self._server.wait_for_termination())
        end.add_done_callback(_retrieve)
        while not end.done() and not self._is_stopping:
            await asyncio.wait([end], timeout=KNOCK_SECONDS)
            if not end.done() and not self._is_stopping and not await self._is_open(port):
                return

    async def _is_open(self, port: int) -> bool:
        """Whether somebody listens; only who is refused knows better."""
        try:
            async with asyncio.timeout(KNOCK_SECONDS):
                _, writer = await asyncio.open_connection(self._host, port)
        except ConnectionRefusedError:
            return False
        except OSError:  # no answer in time, or no descriptor to ask with
            return True
        writer.close()
        return True

    async def _replace(self, port: int) -> None:
        end = asyncio.ensure_future(self._server.stop(0))
        end.add_done_callback(_retrieve)
        await asyncio.wait([end], timeout=KNOCK_SECONDS)  # it waits for the connection that ended it
        while True:
            self._server = self._make()
            try:
                self._listen(self._server, port)
                break
            except RuntimeError:
                await asyncio.sleep(PAUSE_SECONDS)
        await self._server.start()


def _retrieve(end: "asyncio.Future[Any]") -> None:
    """Marks what ended a server as seen."""
    if not end.cancelled():
        end.exception()
