"""Counts every request, also those that are refused before they reach an endpoint."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.metrics.http_metrics import HttpMetrics

CLIENT_GONE = 499
"""What nginx calls it; nobody reads it."""


class RequestCounter:
    """ASGI middleware: one count for each request, by the status with which its answer begins."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics):
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = CLIENT_GONE

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._metrics.add(scope["path"], status)
