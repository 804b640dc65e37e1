"""How a service is protected, and how it is reached: certificates and tokens, in files that may change meanwhile."""

import ipaddress
from dataclasses import dataclass, field

from specpair.errors import InvalidFieldError

SYSTEM = "system"
"""In place of a file: the authorities that are known everywhere."""


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files of one side of TLS. Raises InvalidFieldError for a key without its certificate and the like."""

    cert: str | None = None
    """The certificate to show, with its chain."""
    key: str | None = None
    """Its private key, without a password."""
    ca: str | None = None
    """Authorities that the certificate of the other side must come from, or `system`. A server with it wants one."""

    def __post_init__(self) -> None:
        if (self.cert is None) is not (self.key is None):
            missing = "tls_key" if self.key is None else "tls_cert"
            raise InvalidFieldError(missing, "is missing; a certificate and its key go together")

    @property
    def paths(self) -> list[str]:
        """The files that there are."""
        return [path for path in (self.cert, self.key, self.ca) if path is not None and path != SYSTEM]


@dataclass(frozen=True, kw_only=True)
class ServerSecurity:
    """What protects a port. Without anything it is for the loopback interface alone, unless that is said."""

    tls: TlsFiles | None = None
    """None serves in plain text; with a `ca` clients must show a certificate."""
    tokens_file: str | None = None
    """Bearer tokens of clients, one a line (`specpair.security.tokens`); None asks for none."""
    is_insecure: bool = False
    """Whether anybody who reaches the port may use it."""

    def __post_init__(self) -> None:
        if self.tls is not None and self.tls.cert is None:
            raise InvalidFieldError("tls_cert", "is missing; a server needs a certificate and its key to speak TLS")
        if self.tls is not None and self.tls.ca == SYSTEM:
            raise InvalidFieldError("tls_ca", f"is {SYSTEM}; a server wants a file of authorities for its clients")

    @property
    def is_protected(self) -> bool:
        return self.tls is not None or self.tokens_file is not None


@dataclass(frozen=True, kw_only=True)
class ChannelSecurity:
    """How a client reaches a service: in plain text without anything."""

    tls: TlsFiles | None = None
    """None speaks plain text; a `ca` of None is `system`."""
    server_name: str | None = None
    """The name that the server's certificate must have, where that is not the host's."""
    token: str | None = field(default=None, repr=False)
    """The bearer token to show."""
    token_file: str | None = None
    """A file with that token alone, in place of it."""

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise InvalidFieldError("token_file", "is given, and so is a token; one of them is enough")
        if self.server_name is not None and self.tls is None:
            raise InvalidFieldError("tls_name", "is given, but nothing of TLS")

    @property
    def has_no_token(self) -> bool:
        return self.token is None and self.token_file is None


PLAIN = ChannelSecurity()
UNPROTECTED = ServerSecurity()


def check_exposure(host: str, security: ServerSecurity) -> None:
    """Raises InvalidFieldError for a port that others reach and nothing protects."""
    if is_loopback(host) or security.is_protected or security.is_insecure:
        return
    raise InvalidFieldError(
        "host",
        f"{host} can be reached from other machines, where anybody could use the service: protect it with --tls-cert "
        "and --tls-key or with --tokens-file, or allow it with --insecure",
    )


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is for this machine alone; of names only localhost is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
