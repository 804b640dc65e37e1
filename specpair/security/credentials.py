"""TLS credentials for gRPC and HTTP. Servers reload certificates when their files change."""

import ssl

import grpc

from specpair.errors import InvalidFieldError
from specpair.security.settings import SYSTEM, TlsFiles
from specpair.security.watched_files import WatchedFiles, read_secret_file


def grpc_server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Server credentials; each new connection uses the current files. Raises InvalidFieldError."""
    watched = WatchedFiles(tls.paths, lambda: _certificate_configuration(tls))
    return grpc.dynamic_ssl_server_credentials(
        watched.current(), watched.current, require_client_authentication=tls.ca is not None
    )


def grpc_channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Client credentials from the files as they are now. Raises InvalidFieldError."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)
    return grpc.ssl_channel_credentials(
        _bytes("tls_ca", tls.ca), _bytes("tls_key", tls.key), _bytes("tls_cert", tls.cert)
    )


def http_server_context(tls: TlsFiles) -> ssl.SSLContext:
    """A server context; each new connection uses the current files. Raises InvalidFieldError."""
    watched = WatchedFiles(tls.paths, lambda: _server_context(tls))
    context = watched.current()

    def use_current(connection: ssl.SSLObject, server_name: str | None, first: ssl.SSLContext) -> None:
        connection.context = watched.current()

    context.sni_callback = use_current  # called for every connection, also without a server name
    return context


def http_client_context(tls: TlsFiles) -> ssl.SSLContext:
    """A client context from the files as they are now. Raises InvalidFieldError."""
    knows_all = tls.ca in (None, SYSTEM)
    return _load(ssl.create_default_context() if knows_all else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)


def _certificate_configuration(tls: TlsFiles) -> grpc.ServerCertificateConfiguration:
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)  # gRPC itself would report mistakes only at each connection
    assert tls.key is not None and tls.cert is not None, "ServerSecurity has checked it"
    pair = (read_secret_file("tls_key", tls.key), read_secret_file("tls_cert", tls.cert))
    return grpc.ssl_server_certificate_configuration([pair], _bytes("tls_ca", tls.ca))


def _server_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a resumed session would not have to show its certificate again
    _load(context, tls)
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(context: ssl.SSLContext, tls: TlsFiles) -> ssl.SSLContext:
    """Loads the files into the context and returns it. Raises InvalidFieldError, which names the files."""
    for field in ("cert", "key", "ca"):
        _bytes(f"tls_{field}", getattr(tls, field))
    try:
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, password="")  # without it ssl asks on the terminal
    except (OSError, ValueError):  # from ssl, or because a file was removed meanwhile
        problem = f"{tls.cert} and {tls.key} are not a matching certificate and key in PEM form without a password"
        raise InvalidFieldError("tls_cert", problem) from None
    try:
        if tls.ca not in (None, SYSTEM):
            context.load_verify_locations(cafile=tls.ca)
    except OSError:
        raise InvalidFieldError("tls_ca", f"{tls.ca} holds no certificate in PEM form") from None
    return context


def _bytes(field: str, path: str | None) -> bytes | None:
    """The contents of a file; None for the public authorities. Raises InvalidFieldError."""
    return None if path in (None, SYSTEM) else read_secret_file(field, path)
