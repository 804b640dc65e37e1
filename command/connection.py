"""Connects a command to a coordinator."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from command.failures import WRONG_USE, CommandError
from command.flags.access import TOKEN, current_access
from specpair.client.channel import connect
from specpair.client.tls_hints import tls_hint
from specpair.errors import CapacityExhaustedError, NotSupportedError, PeerUnavailableError, UnauthenticatedError
from specpair.rpc.status import TRANSPORT_CODE, peer_errors
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

NO_GRPC = ("http1.x", "Failed parsing HTTP/2")
"""gRPC says so of a port that answers in another protocol."""
TOO_LARGE = re.compile(r"SERVER: Received message larger than max \((\d+) vs\. (\d+)\)")
"""gRPC says so of a request above the server's limit; no code of the server has seen it then."""


@asynccontextmanager
async def coordinator_at(address: str) -> AsyncIterator[CoordinatorServiceStub]:
    """A stub. In its context gRPC errors become SpecpairErrors, and an absent coordinator a CommandError."""
    check_address(address)
    channel = connect(address, current_access())
    try:
        with peer_errors():
            yield CoordinatorServiceStub(channel)
    except PeerUnavailableError as error:
        if (
            TRANSPORT_CODE not in error.metadata
        ):  # the coordinator's own message, about one of its peers or about its start
            raise
        hint = tls_hint(error.message, speaks_tls=current_access().tls is not None) or hint_of(error.message)
        raise CommandError(f"the coordinator at {address} cannot be reached; {hint}") from None
    except NotSupportedError as error:
        if TRANSPORT_CODE not in error.metadata:
            raise
        raise CommandError(f"at {address} is no coordinator; draft and target have ports of their own") from None
    except CapacityExhaustedError as error:
        if (sizes := TOO_LARGE.search(error.message)) is None or TRANSPORT_CODE not in error.metadata:
            raise
        problem = f"the request is too large: it has {sizes[1]} bytes, and the coordinator takes at most {sizes[2]}"
        raise CommandError(problem, WRONG_USE) from None
    except UnauthenticatedError:
        problem = "no bearer token" if current_access().has_no_token else "an unknown bearer token"
        raise CommandError(f"the coordinator at {address} got {problem}: see --token-file and {TOKEN}") from None
    finally:
        await channel.close()


def check_address(address: str) -> None:
    """Raises CommandError unless it is `host:port`."""
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not host or "//" in host or not is_port:
        raise CommandError(f"--address: is {address!r}; it must be host:port, the port being that of gRPC", WRONG_USE)


def hint_of(message: str) -> str:
    """What to do, by what gRPC says of a connection that failed."""
    if any(words in message for words in NO_GRPC):
        return "what answers there is not gRPC; --address is not the port of HTTP"
    return "`specpair up` starts one, --address says where one is"
