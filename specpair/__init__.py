"""The library that the services share.

gRPC reads its settings from the environment when it is imported. So this package sets them, and the packages of the
services, of the command and of the bench import it before anything else.
"""

import os
from importlib.metadata import PackageNotFoundError, version

GRPC_KNOWN = "1.85."
"""The version of grpcio whose event engine was compared with its predecessor. Others get gRPC's own default."""


def is_known_grpc() -> bool:
    """Whether the installed gRPC is the one that was compared."""
    try:
        return version("grpcio").startswith(GRPC_KNOWN)
    except PackageNotFoundError:
        return False


if is_known_grpc():
    # The event engine reads each message in a thread of its own, which wakes gRPC's poller, which wakes the event loop:
    # one change of threads more than the sockets that came before it, 50 to 70 microseconds a call.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
