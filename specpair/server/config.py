"""How a service listens."""

from dataclasses import dataclass
from typing import Literal

from specpair.options import check_range
from specpair.rpc.addresses import join_address
from specpair.rpc.sizes import MAX_MESSAGE_BYTES
from specpair.security.settings import UNPROTECTED, ServerSecurity, check_exposure

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

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
