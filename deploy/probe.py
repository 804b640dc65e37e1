"""Checks over HTTP whether this container's service is ready: `python -S -E probe.py PORT`. Status 0 only if it is.

Health checks run it every few seconds, so it needs no package and loads next to nothing. `specpair health` checks the
same over gRPC, from anywhere, and takes about twenty times as much processor time.
"""

import os
import socket
import sys

TIMEOUT_SECONDS = 3.0


def is_ready(port: int) -> bool:
    """Raises OSError if nothing listens or no answer comes in time."""
    with secured(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        return connection.recv(64).split(b" ")[1:2] == [b"200"]


def secured(connection: socket.socket) -> socket.socket:
    """With TLS if this container's service has it. The certificate is not checked: the service is local."""
    certificate = os.environ.get("SPECPAIR_TLS_CERT")
    if not certificate:
        return connection
    import ssl  # takes as long to load as everything else

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, os.environ.get("SPECPAIR_TLS_KEY") or None)  # for services that require one
    return context.wrap_socket(connection)


if __name__ == "__main__":
    try:
        ready = is_ready(int(sys.argv[1]))
    except OSError as error:
        sys.exit(f"no answer: {error}")
    sys.exit(None if ready else "not ready")
