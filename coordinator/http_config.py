"""How the HTTP front end listens."""

from dataclasses import dataclass

from specpair.options import check_range
from specpair.security.settings import UNPROTECTED, ServerSecurity, check_exposure

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Largest body of a request: a million token ids, or a longer text than most models can read."""


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Where the front end listens, and what it takes. Raises InvalidFieldError for a value outside its limits."""

    port: int
    """0 takes any free port."""
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    """Names, beside `host`, loopback names and addresses, that a request's Host header may have; `*` for any.
    Not looked at under TLS."""
    max_body_bytes: int = MAX_BODY_BYTES
    grace_seconds: float = 1.0
    """How long answers may be under way when the process has stopped generating."""
    security: ServerSecurity = UNPROTECTED
    """What protects the port; nothing is enough on the loopback interface alone."""

    def __post_init__(self) -> None:
        check_range("http.port", self.port, 0, 65535)
        check_range("http.max_body_bytes", self.max_body_bytes, 1024, 2**31 - 1)
        check_range("http.grace_seconds", self.grace_seconds, 0, 3600)
        check_exposure(self.host, self.security)
