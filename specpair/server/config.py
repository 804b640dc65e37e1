"""Configuration of a server."""

from dataclasses import dataclass
from typing import Annotated, Literal

from specpair.flags import LISTENING, LOGGING, Flag, Range, listed
from specpair.options import check_fields
from specpair.rpc.addresses import join_address
from specpair.rpc.sizes import MAX_MESSAGE_BYTES
from specpair.security.settings import UNPROTECTED, ServerSecurity, check_exposure

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

PORTS = (0, 65535)
MESSAGE_SIZE = Range(1024, 2**31 - 1)
AllowedHosts = Annotated[
    tuple[str, ...],
    Flag(
        "Host names that HTTP clients may use for this server, besides localhost, IP addresses and --host; a proxy or "
        "another container uses one. * allows any name, so web pages of other sites can send requests from your "
        "browser.",
        LISTENING,
        "http_allowed_hosts",
        "NAME,...",
        kind=str,
        convert=listed,
    ),
]
"""Compared with a request's Host header; not checked under TLS."""

STALLED_SECONDS = 60.0
"""A client of either front end that reads nothing for this long counts as gone: others wait for its places."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where a service listens and how it behaves as a process.

    Raises InvalidFieldError for a value outside its limits.
    """

    host: Annotated[str, Flag("Address to listen on; 0.0.0.0 for every interface.", LISTENING)] = "127.0.0.1"
    port: Annotated[int, Range(*PORTS, "none"), Flag("Port to listen on; 0 chooses a free one.", LISTENING)]
    metrics_port: Annotated[
        int | None,
        Range(*PORTS, "both"),
        Flag(
            "Port of /metrics for Prometheus; 0 switches it off.",
            LISTENING,
            convert=lambda port: port or None,
        ),
    ] = None
    """For a service without other HTTP. In this field 0 chooses a free port, None serves no metrics."""
    allowed_hosts: AllowedHosts = ()
    max_streams_per_client: Annotated[
        int | None,
        Range(1, 65536),
        Flag(
            "Most streams that one client may have open; a coordinator needs two or three. All clients without a "
            "token or certificate count as one.",
            LISTENING,
        ),
    ] = None
    """None for no limit."""
    max_message_bytes: Annotated[int, MESSAGE_SIZE] = MAX_MESSAGE_BYTES
    security: ServerSecurity = UNPROTECTED
    """Protects the ports, including that of the metrics; only on the loopback interface may it be empty."""
    grace_seconds: Annotated[
        float,
        Range(0, 3600, "both"),
        Flag(
            "Seconds that running requests get to finish after a stop signal; new ones are refused. A second signal "
            "ends the process at once.",
            LISTENING,
        ),
    ] = 5.0
    log_format: Annotated[LogFormat, Flag("Log format: console for people, json for programs.", LOGGING)] = "console"
    log_level: Annotated[LogLevel, Flag("Lowest severity to log.", LOGGING)] = "info"

    def __post_init__(self) -> None:
        check_fields(self)
        check_exposure(self.host, self.security)

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)
