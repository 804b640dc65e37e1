"""A bound on connections. uvicorn has one as well, but what that refuses is in no counter, nor in a form that clients
know."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.http.failures import error_body, retry_headers
from specpair.rpc.http_server import CONNECTIONS

MOST_CONNECTIONS = 1024


class ConnectionLimit:
    """ASGI middleware: answers 503 and closes the connection while there are more than may be."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(scope.get("state", {}).get(CONNECTIONS, ())) <= MOST_CONNECTIONS:
            return await self._app(scope, receive, send)
        message = f"more than {MOST_CONNECTIONS} connections are open, the most that are served"
        headers = {**retry_headers(503), "connection": "close"}
        await JSONResponse(error_body(message, 503, code="capacity_exhausted"), 503, headers)(scope, receive, send)
