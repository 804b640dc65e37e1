"""A gRPC server that is replaced when grpc.aio ends it.

grpc.aio reads the paths of all calls in one loop. A path that is not UTF-8 ends that loop, and with it the server: the
port closes and all calls are cancelled, but the process goes on (seen in 1.85.1). Anyone who can reach the port can
send such a call, and none of our code runs before it. So a new server replaces the old one. Sequences and caches are
not affected, and clients retry. grpc.aio does not report the end while the connection of that call stays open, so the
port is probed as well.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc.aio

REOPEN_SECONDS = 5.0
"""How long the port of the old server may take to become free."""
PAUSE_SECONDS = 0.02
KNOCK_SECONDS = 1.0
"""Pause between two probes of the port; also the timeout of one probe, and of stopping the old server."""

logger = logging.getLogger(__name__)


class LastingServer:
    """A server on one port of a host, replaced by a new one if it ends by itself."""

    def __init__(
        self,
        make: Callable[[], grpc.aio.Server],
        listen: Callable[[grpc.aio.Server, int | None], int],
        fail: Callable[[str], None],
        host: str = "127.0.0.1",
    ):
        """`listen` has a server listen on a port (None: the configured one) and returns the port. It raises
        RuntimeError if the port is taken. `fail` is called if no new server can be started."""
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
        """Stops; running calls have `grace_seconds` to finish. May be called repeatedly, and before the start."""
        self._is_stopping = True
        with suppress(UnicodeDecodeError):  # a server that ended by itself raises its reason again
            await self._server.stop(grace_seconds)
        if self._keeper is not None:
            await asyncio.wait([self._keeper])  # not cancelled: that would cancel what the server itself waits for

    async def _keep(self, port: int) -> None:
        while not self._is_stopping:
            await self._until_deaf(port)
            if self._is_stopping:
                break
            logger.error("gRPC's server ended by itself; starting a new one")
            try:
                async with asyncio.timeout(REOPEN_SECONDS):
                    await self._replace(port)
            except TimeoutError:
                return self._fail("its port is lost")
            except Exception:
                logger.exception("no new server could be started")
                return self._fail("its port is lost")
        await self._server.stop(0)  # `stop` may have ended an older server

    async def _until_deaf(self, port: int) -> None:
        """Waits until the server has ended, for whatever reason, or its port no longer answers."""
        end = asyncio.ensure_future(self._server.wait_for_termination())
        end.add_done_callback(_retrieve)
        while not end.done() and not self._is_stopping:
            await asyncio.wait([end], timeout=KNOCK_SECONDS)
            if not end.done() and not self._is_stopping and not await self._is_open(port):
                return

    async def _is_open(self, port: int) -> bool:
        """Whether the port is open. Only a refused connection counts as closed."""
        try:
            async with asyncio.timeout(KNOCK_SECONDS):
                _, writer = await asyncio.open_connection(self._host, port)
        except ConnectionRefusedError:
            return False
        except OSError:  # a timeout, or no file descriptor left for the probe
            return True
        writer.close()
        return True

    async def _replace(self, port: int) -> None:
        end = asyncio.ensure_future(self._server.stop(0))
        end.add_done_callback(_retrieve)
        await asyncio.wait([end], timeout=KNOCK_SECONDS)  # the end waits for the connection that caused it
        while True:
            self._server = self._make()
            try:
                self._listen(self._server, port)
                break
            except RuntimeError:
                await asyncio.sleep(PAUSE_SECONDS)
        await self._server.start()


def _retrieve(end: "asyncio.Future[Any]") -> None:
    """Marks the exception that ended a server as retrieved, so that asyncio does not log it."""
    if not end.cancelled():
        end.exception()
