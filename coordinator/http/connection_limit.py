"""A limit on connections. uvicorn has one as well, but does not count its refusals, nor send them in a known form."""

from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.http.failures import error_body, retry_headers
from specpair.server.http_server import CONNECTIONS, HttpConnection

MOST_CONNECTIONS = 1024


class ConnectionLimit:
    """ASGI middleware: answers 503 and closes the connection while more than MOST_CONNECTIONS are open."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connections = scope.get("state", {}).get(CONNECTIONS, ())
        if len(connections) <= MOST_CONNECTIONS or open_count(connections) <= MOST_CONNECTIONS:
            return await self._app(scope, receive, send)
        message = f"more than {MOST_CONNECTIONS} connections are open, the most that are served"
        headers = {**retry_headers(503), "connection": "close"}
        await JSONResponse(error_body(message, 503, code="capacity_exhausted"), 503, headers)(scope, receive, send)


def open_count(connections: Iterable[HttpConnection]) -> int:
    """Number of connections that are not being closed."""
    return sum(not connection.transport.is_closing() for connection in connections)
