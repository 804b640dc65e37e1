"""How a service is protected and how a client reaches it: certificates and tokens, in files that may change."""

import ipaddress
from dataclasses import dataclass, field
from typing import Annotated

from specpair.errors import InvalidFieldError
from specpair.flags import SECURITY, Flag, Part

FILE = "FILE"
SYSTEM = "system"
"""Instead of a file: the authorities that are publicly trusted."""


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files of one side of TLS. Raises InvalidFieldError for a key without a certificate, or the reverse."""

    cert: str | None = None
    """This side's certificate, with its chain."""
    key: str | None = None
    """Its private key, without a password."""
    ca: str | None = None
    """Authorities for the other side's certificate, or `system`. A server that has it requires a certificate."""

    def __post_init__(self) -> None:
        if (self.cert is None) is not (self.key is None):
            missing = "tls_key" if self.key is None else "tls_cert"
            raise InvalidFieldError(missing, "is missing; a certificate and its key go together")

    @property
    def paths(self) -> list[str]:
        """The files that are set."""
        return [path for path in (self.cert, self.key, self.ca) if path is not None and path != SYSTEM]


@dataclass(frozen=True, kw_only=True)
class ServerSecurity:
    """What protects a port. An unprotected port may only listen on loopback, unless `is_insecure` is set."""

    tls: Annotated[
        TlsFiles | None,
        Part(
            cert=Flag(
                "Certificate with its chain (PEM): every port of the service then uses TLS. Read again when the file "
                "changes.",
                SECURITY,
                metavar=FILE,
            ),
            key=Flag("Private key of the certificate (PEM, without a password).", SECURITY, metavar=FILE),
            ca=Flag(
                "Certificate authorities for clients (PEM): each client must show a certificate of one of them.",
                SECURITY,
                metavar=FILE,
            ),
        ),
    ] = None
    """None serves in plain text."""
    tokens_file: Annotated[
        str | None,
        Flag(
            "Bearer tokens of clients, one per line: name:token or name:sha256:DIGEST. Calls without one of them are "
            "refused. Read again when the file changes.",
            SECURITY,
            metavar=FILE,
        ),
    ] = None
    is_insecure: Annotated[
        bool,
        Flag(
            "Allow interfaces other than loopback without TLS or tokens: anybody there may use the service.",
            SECURITY,
            "insecure",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.tls is not None and self.tls.cert is None:
            raise InvalidFieldError("tls_cert", "is missing; a server needs a certificate and its key to speak TLS")
        if self.tls is not None and self.tls.ca == SYSTEM:
            raise InvalidFieldError("tls_ca", f"is {SYSTEM}; a server requires a file of authorities for its clients")

    @property
    def is_protected(self) -> bool:
        return self.tls is not None or self.tokens_file is not None


@dataclass(frozen=True, kw_only=True)
class ChannelSecurity:
    """How a client reaches a service; by default in plain text."""

    tls: Annotated[
        TlsFiles | None,
        Part(
            ca=Flag(
                "Use TLS with {peer}; certificates must come from these authorities (PEM); `system` means the publicly "
                "trusted ones.",
                SECURITY,
                metavar=FILE,
            ),
            cert=Flag("Certificate to show to {peer} (PEM).", SECURITY, metavar=FILE),
            key=Flag("Private key of that certificate (PEM, without a password).", SECURITY, metavar=FILE),
        ),
    ] = None
    """None uses plain text; a `ca` of None is `system`."""
    server_name: Annotated[
        str | None,
        Flag(
            "Name that the certificates of {peer} must have. Default: the host's.",
            SECURITY,
            "tls_name",
            "NAME",
        ),
    ] = None
    token: str | None = field(default=None, repr=False)
    """The bearer token to send."""
    token_file: Annotated[
        str | None,
        Flag(
            "File with the bearer token for {peer}; or set {variable} to the token itself.",
            SECURITY,
            metavar=FILE,
        ),
    ] = None
    """Instead of `token`."""

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise InvalidFieldError("token_file", "is given together with a token; give only one of them")
        if self.server_name is not None and self.tls is None:
            raise InvalidFieldError("tls_name", "is given without TLS")

    @property
    def has_no_token(self) -> bool:
        return self.token is None and self.token_file is None


PLAIN = ChannelSecurity()
UNPROTECTED = ServerSecurity()


def check_exposure(host: str, security: ServerSecurity) -> None:
    """Raises InvalidFieldError for an unprotected port that other machines can reach."""
    if is_loopback(host) or security.is_protected or security.is_insecure:
        return
    raise InvalidFieldError(
        "host",
        f"{host} can be reached from other machines, where anybody could use the service: protect it with --tls-cert "
        "and --tls-key or with --tokens-file, or allow it with --insecure",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listening address; the only such name is localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
