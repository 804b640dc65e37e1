"""What every HTTP server of a service has in common: it listens where it is told and leaves signals to the process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from specpair.rpc.config import join_address
from specpair.rpc.server import BindError

BACKLOG = 2048


class QuietServer(uvicorn.Server):
    """uvicorn on the event loop of the process, without signals of its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A listening socket. Raises BindError, which names the flag that sets the port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BindError(f"cannot listen on {join_address(host, port)}: {error.strerror}; see {flag}") from None
