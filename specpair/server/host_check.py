"""Checks the Host header of requests.

Another site can point its own name to this machine (DNS rebinding). A browser then treats our answers as that site's.
But the Host header still holds the name that the browser used, which is not one of ours.
"""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.security.settings import TlsFiles

ANY = "*"
MISDIRECTED = 421
MESSAGE = "the Host header names another server; --http-allowed-hosts sets the names of this one"


def host_checked(app: ASGIApp, host: str, allowed: Sequence[str], tls: TlsFiles | None, refusal: Response) -> ASGIApp:
    """The app behind the check. Not needed under TLS: we have no certificate for the other site's name."""
    return app if tls is not None else HostCheck(app, host, allowed, refusal)


class HostCheck:
    """ASGI middleware that refuses requests whose Host header is not a name of this server."""

    def __init__(self, app: ASGIApp, host: str, allowed: Sequence[str], refusal: Response):
        """`host` is the address it listens on, `allowed` are its other names (`*` allows any). `refusal` answers all
        other names."""
        self._app = app
        self._refusal = refusal
        self._names = {host.lower(), *(name.lower() for name in allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or ANY in self._names:
            return await self._app(scope, receive, send)
        name = host_name(Headers(scope=scope).get("host", ""))
        if is_local(name) or name in self._names:
            return await self._app(scope, receive, send)
        await self._refusal(scope, receive, send)


def host_name(header: str) -> str:
    """The name in a Host header, without the port; an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_local(name: str) -> bool:
    """Whether no site can have this name: an IP address, localhost, or no name at all.

    Browsers always send a name; HTTP/1.0 clients need not.
    """
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
