"""Headers of every answer: the request's id and the security headers for browsers."""

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
SANE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
STATE_KEY = "request_id"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class AnswerHeaders:
    """ASGI middleware: sets `request.state.request_id` and the headers that every answer has."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request_id = sane_id(Headers(scope=scope).get(HEADER))
        scope.setdefault("state", {})[STATE_KEY] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[HEADER] = request_id
                headers.update(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def sane_id(given: str | None) -> str:
    """The given id, or a new one if it is missing, too long, or has characters that do not belong in a log."""
    return given if given is not None and SANE.fullmatch(given) else secrets.token_hex(16)
