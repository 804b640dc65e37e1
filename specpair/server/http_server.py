"""The common base of all HTTP servers of a service: listening socket, connections, TLS. The process handles signals."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from specpair.rpc.addresses import join_address
from specpair.security.credentials import http_server_context
from specpair.security.settings import TlsFiles
from specpair.server.identity import ANONYMOUS
from specpair.server.server import BindError

BACKLOG = 2048
CERTIFICATE_NAME = "certificate_name"
"""Key in the state of a request: the name in the client's certificate."""
CONNECTIONS = "connections"
"""Key in the state of a request: all connections of the server."""
CUT = "cut"
"""Key in the state of a request: a function that aborts its connection, even if data still waits to be sent."""


class QuietServer(uvicorn.Server):
    """uvicorn on the event loop of the process, without its own signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A listening socket. Raises BindError, which names `flag` as the one that sets the port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BindError(f"cannot listen on {join_address(host, port)}: {error.strerror}; see {flag}") from None


class HttpConnection(AutoHTTPProtocol):
    """One connection. It gives the application facts about the connection, and may close an idle one to make room."""

    connections: set[Any]
    """All connections of the server; uvicorn maintains the set."""
    transport: Any
    cycle: Any
    """uvicorn's latest request and response; None before the first."""

    def __init__(self, *arguments: Any, most_connections: int, **options: Any):
        """Beyond `most_connections`, the idle connection that was silent longest is aborted: clients that open
        connections without sending requests must not keep others out."""
        super().__init__(*arguments, **options)
        self._most_connections = most_connections
        self._heard_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request, or for the rest of a request's head."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            CERTIFICATE_NAME: certificate_name(transport.get_extra_info("peercert") or {}),
            CONNECTIONS: self.connections,
            CUT: transport.abort,
        }
        if len(self.connections) > self._most_connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        super().data_received(data)

    def _make_room(self) -> None:
        others = [other for other in self.connections if other is not self and not other.transport.is_closing()]
        idle = [other for other in others if other.is_idle]
        if idle:
            min(idle, key=lambda other: other._heard_at).transport.abort()


def certificate_name(certificate: Mapping[str, Any]) -> str:
    """The common name of a certificate in the ssl module's form, else its first other name."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    common = [value for key, value in subject if key == "commonName"]
    others = [value for _, value in certificate.get("subjectAltName", ())]
    return next((name for name in [*common, *others] if name), ANONYMOUS)


def connection_options(tls: TlsFiles | None, most_connections: int) -> dict[str, Any]:
    """uvicorn's options for connections. Raises InvalidFieldError for unusable files."""
    options: dict[str, Any] = {"http": partial(HttpConnection, most_connections=most_connections)}
    if tls is not None:
        context = http_server_context(tls)
        options["ssl_context_factory"] = lambda config, make_default: context
    return options


def scheme(tls: TlsFiles | None) -> str:
    return "http" if tls is None else "https"
