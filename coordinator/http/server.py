"""The HTTP server beside the gRPC one."""

import asyncio
import logging

import uvicorn

from coordinator.http.app import create_app
from coordinator.http.connection_limit import MOST_CONNECTIONS
from coordinator.http.front_end import FrontEnd
from specpair.rpc.addresses import join_address
from specpair.server.http_server import QuietServer, connection_options, listen, scheme

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept: longer than clients keep theirs, so that none sends on a closing connection."""
CLOSING_SECONDS = 2
"""Seconds that requests have to end after the grace time."""

logger = logging.getLogger(__name__)


class HttpServer:
    """Serves one front end."""

    def __init__(self, front_end: FrontEnd):
        """Raises InvalidFieldError for certificates and tokens that cannot be used."""
        self._front_end = front_end
        config = uvicorn.Config(
            create_app(front_end),
            log_config=None,
            log_level="warning",
            access_log=False,  # each output has its own log line
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=round(front_end.config.grace_seconds) + CLOSING_SECONDS,
            **connection_options(front_end.config.security.tls, MOST_CONNECTIONS),
        )
        self._server = QuietServer(config)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Starts to listen and returns the port. Raises BindError."""
        listener = listen(self._front_end.config.host, self._front_end.config.port, "--http-port")
        port = listener.getsockname()[1]
        self._running = asyncio.create_task(self._server.serve([listener]))
        address = join_address(self._front_end.config.host, port)
        logger.info("%s listening on %s", scheme(self._front_end.config.security.tls), address)
        return port

    async def stop(self) -> None:
        """Refuses new requests. Running ones have the grace time to finish, then they end with an error."""
        self._front_end.is_stopping = True
        self._server.should_exit = True
        if self._running is not None:
            await asyncio.wait((self._running,), timeout=self._front_end.config.grace_seconds)
            self._front_end.grace_is_over.set()
            await self._running
