"""Whether a service of this container is ready, by its HTTP: `python -S -E probe.py PORT`. Status 0 only if it is.

Health checks run it every few seconds. So it needs no package and loads next to nothing: `specpair health` asks the
same by gRPC, from anywhere, and takes some twenty times as much of a processor.
"""

import os
import socket
import sys

TIMEOUT_SECONDS = 3.0


def is_ready(port: int) -> bool:
    """Raises OSError if nobody listens, or nobody answers in time."""
    with secured(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        return connection.recv(64).split(b" ")[1:2] == [b"200"]


def secured(connection: socket.socket) -> socket.socket:
    """By TLS where the service of this container has it. Whose certificate it shows is no question here: its own."""
    certificate = os.environ.get("SPECPAIR_TLS_CERT")
    if not certificate:
        return connection
    import ssl  # takes as long to load as all the rest

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, os.environ.get("SPECPAIR_TLS_KEY") or None)  # for services that ask for one
    return context.wrap_socket(connection)


if __name__ == "__main__":
    try:
        ready = is_ready(int(sys.argv[1]))
    except OSError as error:
        sys.exit(f"no answer: {error}")
    sys.exit(None if ready else "not ready")
