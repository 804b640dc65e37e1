"""`GET /metrics` and `/health` of a service that has no other HTTP: on its own event loop, without threads."""

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

from specpair.errors import UnauthenticatedError
from specpair.metrics_text import render_in_turns
from specpair.rpc.authentication import Authenticator
from specpair.rpc.config import join_address
from specpair.rpc.http_server import QuietServer, listen, scheme, tls_options
from specpair.rpc.security import UNPROTECTED, ServerSecurity, TlsFiles
from specpair.rpc.tokens import AUTHORIZATION

IDLE_SECONDS = 75
"""How long a connection may be idle: longer than usual between two scrapes, so that one connection serves them all."""
MOST_CONNECTIONS = 32
"""More than a few scrapers are none."""
STOP_SECONDS = 1

logger = logging.getLogger(__name__)


@asynccontextmanager
async def metrics_endpoint(
    registry: CollectorRegistry,
    host: str,
    port: int | None,
    security: ServerSecurity = UNPROTECTED,
    is_ready: Callable[[], bool] = lambda: True,
) -> AsyncIterator[int | None]:
    """Serves the metrics at /metrics while it is open, and at /health whether the service is ready; gives the port.

    Metrics want a token where tokens are asked for, health does not. A port of 0 is any free one, one of None serves
    nothing. Raises BindError, and InvalidFieldError for certificates and tokens.
    """
    if port is None:
        yield None
        return
    tls = security.tls
    server = QuietServer(_config(metrics_app(registry, is_ready, Authenticator(security)), tls))
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


def metrics_app(registry: CollectorRegistry, is_ready: Callable[[], bool], authenticator: Authenticator) -> Starlette:
    """The metrics, in the format that the Accept header asks for; health as gRPC's health protocol has it."""

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
