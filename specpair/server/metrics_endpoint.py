"""`GET /metrics` and `/health` for a service without another HTTP server, on the service's event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specpair.errors import UnauthenticatedError
from specpair.rpc.addresses import join_address
from specpair.security.settings import TlsFiles
from specpair.security.tokens import AUTHORIZATION
from specpair.server.authentication import Authenticator
from specpair.server.config import ServerConfig
from specpair.server.host_check import MESSAGE, MISDIRECTED, host_checked
from specpair.server.http_server import QuietServer, connection_options, listen, scheme
from specpair.server.metrics_text import render_in_turns

IDLE_SECONDS = 75
"""How long a connection may be idle: longer than the usual scrape interval, so that scrapers can keep a connection."""
MOST_CONNECTIONS = 32
"""There are never more than a few scrapers."""
STOP_SECONDS = 1

logger = logging.getLogger(__name__)


@asynccontextmanager
async def metrics_endpoint(
    registry: CollectorRegistry, config: ServerConfig, is_ready: Callable[[], bool] = lambda: True
) -> AsyncIterator[int | None]:
    """Serves /metrics, and /health (whether the service is ready), inside the context; yields the port.

    If the server has tokens, /metrics requires one; /health does not. Without a metrics port nothing is served. Raises
    BindError, and InvalidFieldError for certificates and tokens.
    """
    if config.metrics_port is None:
        yield None
        return
    tls = config.security.tls
    app = metrics_app(registry, is_ready, Authenticator(config.security))
    refusal = JSONResponse({"error": MESSAGE}, MISDIRECTED)
    checked = host_checked(app, config.host, config.allowed_hosts, tls, refusal)
    server = QuietServer(_config(checked, tls))
    listening = listen(config.host, config.metrics_port, "--metrics-port")
    serving = asyncio.create_task(server.serve([listening]))
    bound_port = listening.getsockname()[1]
    logger.info("metrics at %s://%s/metrics", scheme(tls), join_address(config.host, bound_port))
    try:
        yield bound_port
    finally:
        server.should_exit = True
        await serving
        listening.close()


def metrics_app(registry: CollectorRegistry, is_ready: Callable[[], bool], authenticator: Authenticator) -> Starlette:
    """Serves the metrics in the format that the Accept header names, and the same health as gRPC's health service."""

    async def metrics(request: Request) -> Response:
        try:
            authenticator.client_of(request.headers.get(AUTHORIZATION))
        except UnauthenticatedError as error:
            return JSONResponse({"error": error.message}, 401, headers={"www-authenticate": "Bearer"})
        body, content_type = await render_in_turns(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def health(_: Request) -> Response:
        said = is_ready()
        return JSONResponse({"status": "ready" if said else "not ready"}, 200 if said else 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health)])


def _config(app: ASGIApp, tls: TlsFiles | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level=logging.WARNING,
        server_header=False,
        limit_concurrency=2 * MOST_CONNECTIONS,  # connections being closed still count for a moment
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        **connection_options(tls, MOST_CONNECTIONS),
    )
