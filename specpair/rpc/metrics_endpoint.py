"""`GET /metrics` of a service that has no other HTTP: on the service's own event loop, without threads."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from specpair.metrics_text import render
from specpair.rpc.config import join_address
from specpair.rpc.http_server import QuietServer, listen, scheme, tls_options
from specpair.rpc.security import TlsFiles

IDLE_SECONDS = 75
"""How long a connection may be idle: longer than usual between two scrapes, so that one connection serves them all."""
MOST_CONNECTIONS = 32
"""More than a few scrapers are none."""
STOP_SECONDS = 1

logger = logging.getLogger(__name__)


@asynccontextmanager
async def metrics_endpoint(
    registry: CollectorRegistry, host: str, port: int | None, tls: TlsFiles | None = None
) -> AsyncIterator[int | None]:
    """Serves the metrics at /metrics while it is open; gives the port, any free one for 0.

    It asks for no token: metrics are counts and times, never texts. A port of None serves nothing. Raises BindError,
    and InvalidFieldError for certificates.
    """
    if port is None:
        yield None
        return
    server = QuietServer(_config(metrics_app(registry), tls))
    listening = listen(host, port, "--metrics-port")
    serving = asyncio.create_task(server.serve([listening]))
    bound_port = listening.getsockname()[1]
    logger.info("metrics at %s://%s/metrics", scheme(tls), join_address(host, bound_port))
    try:
        yield bound_port
    finally:
        server.should_exit = True
        await serving
        listening.close()


def metrics_app(registry: CollectorRegistry) -> Starlette:
    """The metrics, in the format that the Accept header asks for."""

    async def metrics(request: Request) -> Response:
        body, content_type = render(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return Starlette(routes=[Route("/metrics", metrics)])


def _config(app: Starlette, tls: TlsFiles | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level=logging.WARNING,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        **tls_options(tls),
    )
