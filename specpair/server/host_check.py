"""Whom a request takes this server for.

A page of another site can have its own name point to this machine (DNS rebinding), and a browser then takes our answers
for that site's. But it says in the Host header which name it asked, and that is none of ours.
"""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from specpair.security.settings import TlsFiles

ANY = "*"
MISDIRECTED = 421
MESSAGE = "the Host header names another server; --http-allowed-hosts says which names this one has"


def host_checked(app: ASGIApp, host: str, allowed: Sequence[str], tls: TlsFiles | None, refusal: Response) -> ASGIApp:
    """The app behind a check. Under TLS browsers see to it: a name that was made to point here has no certificate of
    ours."""
    return app if tls is not None else HostCheck(app, host, allowed, refusal)


class HostCheck:
    """ASGI middleware: refuses whoever asks by a name that is not this server's."""

    def __init__(self, app: ASGIApp, host: str, allowed: Sequence[str], refusal: Response):
        """`host` is where it listens, `allowed` are the other names it has; `*` takes any. `refusal` is the answer to
        others."""
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
    """The name in a Host header, without its port, and an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_local(name: str) -> bool:
    """Whether no site can have this name: an address, this machine's own name for itself, or none at all.

    Browsers always say a name; HTTP/1.0 clients need not.
    """
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
