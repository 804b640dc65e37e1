"""The flags by which a service is protected, and those by which a coordinator shows that it may use another one."""

import os
from typing import Annotated

import typer

from specpair.security.settings import ChannelSecurity, ServerSecurity, TlsFiles

SECURITY = "Security"
PEER_TOKEN = "SPECPAIR_PEER_TOKEN"
FILE = "FILE"

TlsCertOption = Annotated[
    str | None,
    typer.Option(
        "--tls-cert",
        envvar="SPECPAIR_TLS_CERT",
        metavar=FILE,
        help="Certificate, with its chain, as PEM: every port of the service speaks TLS. Read again when it changes.",
        rich_help_panel=SECURITY,
    ),
]
TlsKeyOption = Annotated[
    str | None,
    typer.Option(
        "--tls-key",
        envvar="SPECPAIR_TLS_KEY",
        metavar=FILE,
        help="The certificate's private key, as PEM without a password.",
        rich_help_panel=SECURITY,
    ),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        envvar="SPECPAIR_TLS_CA",
        metavar=FILE,
        help="Authorities for clients, as PEM: each client must show a certificate of theirs.",
        rich_help_panel=SECURITY,
    ),
]
TokensFileOption = Annotated[
    str | None,
    typer.Option(
        "--tokens-file",
        envvar="SPECPAIR_TOKENS_FILE",
        metavar=FILE,
        help="Bearer tokens of clients, a line each: name:token or name:sha256:DIGEST. Calls without one of them are "
        "refused. Read again when it changes.",
        rich_help_panel=SECURITY,
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="SPECPAIR_INSECURE",
        help="Listen on other interfaces than loopback without TLS and tokens: anybody there may use the service.",
        rich_help_panel=SECURITY,
    ),
]
PeerTlsCaOption = Annotated[
    str | None,
    typer.Option(
        "--peer-tls-ca",
        envvar="SPECPAIR_PEER_TLS_CA",
        metavar=FILE,
        help="Speak TLS with draft and target; their certificates must come from these authorities, or from those that "
        "are known everywhere: `system`.",
        rich_help_panel=SECURITY,
    ),
]
PeerTlsCertOption = Annotated[
    str | None,
    typer.Option(
        "--peer-tls-cert",
        envvar="SPECPAIR_PEER_TLS_CERT",
        metavar=FILE,
        help="Certificate to show to draft and target, as PEM.",
        rich_help_panel=SECURITY,
    ),
]
PeerTlsKeyOption = Annotated[
    str | None,
    typer.Option(
        "--peer-tls-key",
        envvar="SPECPAIR_PEER_TLS_KEY",
        metavar=FILE,
        help="Its private key, as PEM without a password.",
        rich_help_panel=SECURITY,
    ),
]
PeerTlsNameOption = Annotated[
    str | None,
    typer.Option(
        "--peer-tls-name",
        envvar="SPECPAIR_PEER_TLS_NAME",
        metavar="NAME",
        help="Name that the certificates of draft and target must have; by default the host's.",
        rich_help_panel=SECURITY,
    ),
]
PeerTokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--peer-token-file",
        envvar="SPECPAIR_PEER_TOKEN_FILE",
        metavar=FILE,
        help=f"File with the bearer token for draft and target; or the token itself in {PEER_TOKEN}.",
        rich_help_panel=SECURITY,
    ),
]


def server_security(
    tls_cert: str | None, tls_key: str | None, tls_ca: str | None, tokens_file: str | None, is_insecure: bool
) -> ServerSecurity:
    """What the flags say. Raises InvalidFieldError for what does not go together."""
    has_tls = any(path is not None for path in (tls_cert, tls_key, tls_ca))
    tls = TlsFiles(cert=tls_cert, key=tls_key, ca=tls_ca) if has_tls else None
    return ServerSecurity(tls=tls, tokens_file=tokens_file, is_insecure=is_insecure)


def channel_security(
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_name: str | None,
    token_file: str | None,
    token_variable: str,
) -> ChannelSecurity:
    """What the flags say, and the token of the environment where there is no file. Raises InvalidFieldError."""
    has_tls = any(path is not None for path in (tls_ca, tls_cert, tls_key))
    return ChannelSecurity(
        tls=TlsFiles(cert=tls_cert, key=tls_key, ca=tls_ca) if has_tls else None,
        server_name=tls_name,
        token=os.environ.get(token_variable) or None if token_file is None else None,
        token_file=token_file,
    )
