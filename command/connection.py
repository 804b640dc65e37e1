"""Connects a command to a coordinator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from command.failures import CommandError
from command.flags.access import TOKEN, current_access
from specpair.client.channel import connect
from specpair.client.tls_hints import tls_hint
from specpair.errors import PeerUnavailableError, UnauthenticatedError
from specpair.rpc.status import TRANSPORT_CODE, peer_errors
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub


@asynccontextmanager
async def coordinator_at(address: str) -> AsyncIterator[CoordinatorServiceStub]:
    """A stub. In its context gRPC errors become SpecpairErrors, and an absent coordinator a CommandError."""
    channel = connect(address, current_access())
    try:
        with peer_errors():
            yield CoordinatorServiceStub(channel)
    except PeerUnavailableError as error:
        if (
            TRANSPORT_CODE not in error.metadata
        ):  # the coordinator's own message, about one of its peers or about its start
            raise
        hint = tls_hint(error.message, speaks_tls=current_access().tls is not None) or "`specpair up` starts one"
        raise CommandError(f"the coordinator at {address} cannot be reached; {hint}") from None
    except UnauthenticatedError:
        problem = "no bearer token" if current_access().has_no_token else "an unknown bearer token"
        raise CommandError(f"the coordinator at {address} got {problem}: see --token-file and {TOKEN}") from None
    finally:
        await channel.close()
