"""How a coordinator works: its peers, its limits, its patience."""

from dataclasses import dataclass

from coordinator.http_config import HttpConfig
from specpair.errors import InvalidFieldError
from specpair.options import check_range
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.server.config import ServerConfig

DNS_PREFIX = "dns:"
"""Before `name:port`: every address that the name has is an instance of its own."""
MAX_SPECULATIVE_TOKENS = 64
MAX_ADDRESSES = 64
MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Largest message of a client: more token ids than any model reads. Those of draft and target have distributions."""
TIMES = (
    "max_queue_wait",
    "draft_timeout",
    "draft_cooldown",
    "target_timeout",
    "startup_timeout",
    "draft_startup_timeout",
)


@dataclass(frozen=True, kw_only=True)
class CoordinatorConfig:
    """One pair and the way it is used. Times are in seconds.

    Raises InvalidFieldError for a value outside its limits.
    """

    server: ServerConfig
    http: HttpConfig | None = None
    """Where the HTTP front end listens; None for none."""
    target_addresses: tuple[str, ...]
    """Of the target service, at least one: `host:port`, or `dns:name:port` for all hosts that the name stands for."""
    draft_addresses: tuple[str, ...] = ()
    """The same of the draft service; none decodes with the target alone."""
    peer_security: ChannelSecurity = PLAIN
    """How the coordinator reaches draft and target."""
    num_speculative_tokens: int | None = None
    """Tokens proposed per round unless the request says otherwise; None decides anew for each round."""
    max_num_speculative_tokens: int = 16
    """Most tokens proposed per round."""
    max_requests: int = 64
    """Requests that may run at once; one that asks for several outputs counts as so many."""
    max_requests_per_client: int | None = None
    """The same for one client, those that wait included; None for no such limit. Clients without a name are one."""
    max_queued_requests: int = 64
    """Requests that may wait for places; 0 refuses at once what does not fit."""
    max_queue_wait: float = 30.0
    """How long a request may wait for places."""
    draft_timeout: float = 5.0
    """How long a round waits for its proposal before it goes without."""
    draft_cooldown: float = 1.0
    """How long a draft that did not answer is left alone."""
    target_timeout: float = 60.0
    """How long a request waits for a lost target, and for any single answer of the target."""
    startup_timeout: float = 600.0
    """How long the start waits for the target, which may have weights to load."""
    draft_startup_timeout: float = 120.0
    """How long the start waits for the draft; after that it serves without, and takes the draft up when it comes."""

    def __post_init__(self) -> None:
        check_range("target_addresses length", len(self.target_addresses), 1, MAX_ADDRESSES)
        check_range("draft_addresses length", len(self.draft_addresses), 0, MAX_ADDRESSES)
        for name, addresses in {"target": self.target_addresses, "draft": self.draft_addresses}.items():
            for address in addresses:
                check_address(name, address)
        self._check_names()
        check_range("max_num_speculative_tokens", self.max_num_speculative_tokens, 0, MAX_SPECULATIVE_TOKENS)
        if self.num_speculative_tokens is not None:
            check_range("num_speculative_tokens", self.num_speculative_tokens, 0, self.max_num_speculative_tokens)
        check_range("max_requests", self.max_requests, 1, 65536)
        if self.max_requests_per_client is not None:
            check_range("max_requests_per_client", self.max_requests_per_client, 1, 65536)
        check_range("max_queued_requests", self.max_queued_requests, 0, 65536)
        for name in TIMES:
            check_range(name, getattr(self, name), 0.001, 86400.0)

    def _check_names(self) -> None:
        has_dns = any(address.startswith(DNS_PREFIX) for address in (*self.target_addresses, *self.draft_addresses))
        if has_dns and self.peer_security.tls is not None and self.peer_security.server_name is None:
            problem = f"is missing: hosts behind {DNS_PREFIX} are reached by addresses, which certificates do not name"
            raise InvalidFieldError("peer_tls_name", problem)


def check_address(field: str, address: str) -> None:
    """Raises InvalidFieldError unless the address is `host:port` or `dns:name:port`."""
    host, _, port = address.removeprefix(DNS_PREFIX).rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidFieldError(field, f"is {address!r}; it must be host:port, the port from 1 to 65535")
