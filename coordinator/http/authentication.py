"""Authentication: who may use the API, where tokens are required."""

from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.http.failures import failure_response
from coordinator.http.page_routes import page_paths
from coordinator.http.parameter_names import names_at
from specpair.errors import UnauthenticatedError
from specpair.security.tokens import AUTHORIZATION
from specpair.server.authentication import Authenticator
from specpair.server.http_server import CERTIFICATE_NAME
from specpair.server.identity import ANONYMOUS, name_client

OPEN_PATHS = ("/health",)
"""Open to everyone who reaches the port: load balancers have no tokens, and it reveals nothing secret."""


class Authentication:
    """ASGI middleware: names the client of every request, or answers 401 before anything is read."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, open_paths: Iterable[str]):
        self._app = app
        self._authenticator = authenticator
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            try:
                name_client(self._client_of(scope))
            except UnauthenticatedError as error:
                return await failure_response(error, names_at(scope["path"]))(scope, receive, send)
        await self._app(scope, receive, send)

    def _client_of(self, scope: Scope) -> str:
        certificate_name = scope.get("state", {}).get(CERTIFICATE_NAME, ANONYMOUS)
        return self._authenticator.client_of(Headers(scope=scope).get(AUTHORIZATION), certificate_name)


def open_paths(page: Path) -> set[str]:
    """Paths that need no token: OPEN_PATHS and the files of the page, which contain no data."""
    return {*OPEN_PATHS, "/", *page_paths(page)}
