"""HEAD: what GET would answer, without its body."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadRequests:
    """ASGI middleware: the routes see GET instead of HEAD. The server, which knows better, sends no body."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def with_head(allow: str) -> str:
    """The `allow` header of a route: HEAD goes where GET does."""
    methods = {method.strip() for method in allow.split(",")}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
