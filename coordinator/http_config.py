"""How the HTTP front end listens."""

import re
from dataclasses import dataclass
from typing import Annotated

from specpair.errors import InvalidFieldError
from specpair.flags import LISTENING, Flag, Range, listed
from specpair.options import check_fields
from specpair.security.settings import UNPROTECTED, ServerSecurity, check_exposure
from specpair.server.config import MESSAGE_SIZE, PORTS, AllowedHosts

ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?")
ANY = "*"
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
    """In this field 0 chooses a free port."""
    host: str = "127.0.0.1"
    allowed_hosts: AllowedHosts = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Flag(
            "Web pages of other sites that may call the API from a browser, by their origins, such as "
            "https://app.example; * for all. By default only the page of this server.",
            LISTENING,
            "http_allowed_origins",
            "ORIGIN,...",
            kind=str,
            convert=listed,
        ),
    ] = ()
    max_body_bytes: Annotated[int, MESSAGE_SIZE] = MAX_BODY_BYTES
    grace_seconds: Annotated[float, Range(0, 3600)] = 1.0
    """Seconds that answers may still take after the process has stopped generating."""
    security: ServerSecurity = UNPROTECTED
    """Protects the port; only on the loopback interface may it be empty."""

    def __post_init__(self) -> None:
        check_fields(self, "http.")
        check_exposure(self.host, self.security)
        for origin in self.allowed_origins:
            if origin != ANY and (not ORIGIN.fullmatch(origin) or origin.endswith((":80", ":443"))):
                problem = f"{origin!r} is no origin; it must be like https://app.example or http://localhost:3000"
                raise InvalidFieldError("http_allowed_origins", problem)
