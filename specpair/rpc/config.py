"""How a service listens."""

from dataclasses import dataclass
from typing import Literal

from specpair.options import check_range
from specpair.rpc.security import UNPROTECTED, ServerSecurity, check_exposure

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message on any channel, both ways; gRPC's own limit is 4 MiB, one dense proposal at V = 128k."""
MAX_TOGETHER_BYTES = 1024 * 1024
"""Up to this size calls of a hot stream, or their answers, travel in one message; a larger one travels alone."""

MAX_TOGETHER_CALLS = 1024
"""Most calls, or answers, in one message of a hot stream."""
MAX_PLAIN_BYTES = 4 * 1024 * 1024
"""Of a request that carries no distributions, as of a body over HTTP. To make messages of bytes takes the event loop up
to 0.1 s a MiB, and it is done before anybody is asked."""
DISTRIBUTION_METHODS = frozenset(
    f"/specpair.v1.TargetService/{name}" for name in ("VerifyProposal", "StreamVerifications")
)

STALLED_SECONDS = 60.0
"""A client that takes nothing for so long, of either front end, is gone: it holds places that others wait for."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where a service listens and how it behaves as a process.

    Raises InvalidFieldError for a value outside its limits.
    """

    port: int
    """0 takes any free port."""
    host: str = "127.0.0.1"
    metrics_port: int | None = None
    """Of /metrics, where the service has no other HTTP; 0 takes any free port, None serves none."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, beside `host`, loopback names and addresses, by which metrics may be asked for; `*` for any. Not looked at
    under TLS."""
    grace_seconds: float = 5.0
    """How long running calls may go on after a signal to stop."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    security: ServerSecurity = UNPROTECTED
    """What protects the ports, that of the metrics too; nothing is enough on the loopback interface alone."""
    max_streams_per_client: int | None = None
    """Most streams that one client may have open; None for no such limit."""
    log_format: LogFormat = "console"
    log_level: LogLevel = "info"

    def __post_init__(self) -> None:
        check_range("port", self.port, 0, 65535)
        if self.metrics_port is not None:
            check_range("metrics_port", self.metrics_port, 0, 65535)
        check_range("grace_seconds", self.grace_seconds, 0, 3600)
        check_range("max_message_bytes", self.max_message_bytes, 1024, 2**31 - 1)
        if self.max_streams_per_client is not None:
            check_range("max_streams_per_client", self.max_streams_per_client, 1, 65536)
        check_exposure(self.host, self.security)

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
