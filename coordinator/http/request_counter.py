"""Counts every request, also those that are refused before they reach an endpoint."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.metrics.http_metrics import HttpMetrics

CLIENT_GONE = 499
"""nginx's status for a client that disconnected; it is not sent."""


class RequestCounter:
    """ASGI middleware: counts each request by the status of its answer."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics):
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, is_gone = CLIENT_GONE, False

        async def receive_watched() -> Message:
            nonlocal is_gone
            message = await receive()
            is_gone = is_gone or message["type"] == "http.disconnect"
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start" and not is_gone:
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive_watched, send_counted)
        finally:
            self._metrics.add(scope["path"], status)
