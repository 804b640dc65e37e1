"""How the HTTP front end listens."""

from dataclasses import dataclass
from typing import Annotated

from specpair.flags import LISTENING, Flag, Range
from specpair.options import check_fields
from specpair.security.settings import UNPROTECTED, ServerSecurity, check_exposure
from specpair.server.config import MESSAGE_SIZE, PORTS, AllowedHosts

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Largest body of a request: a million token ids, or a longer text than most models can read."""


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Where the front end listens, and its limits. Raises InvalidFieldError for a value outside its limits."""

    port: Annotated[
        int,
        Range(*PORTS, "none"),
        Flag(
            "Port of the OpenAI-compatible API, the page and /metrics; 0 switches them off.",
            LISTENING,
            "http_port",
        ),
    ]
    """In this class 0 means any free port."""
    host: str = "127.0.0.1"
    allowed_hosts: AllowedHosts = ()
    max_body_bytes: Annotated[int, MESSAGE_SIZE] = MAX_BODY_BYTES
    grace_seconds: Annotated[float, Range(0, 3600)] = 1.0
    """How long answers may still be sent after the process has stopped generating."""
    security: ServerSecurity = UNPROTECTED
    """What protects the port; only the loopback interface needs no protection."""

    def __post_init__(self) -> None:
        check_fields(self, "http.")
        check_exposure(self.host, self.security)
