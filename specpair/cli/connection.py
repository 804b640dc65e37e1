"""The way from the command line to a coordinator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specpair.cli.failures import CommandError
from specpair.errors import PeerUnavailableError
from specpair.rpc.client import connect
from specpair.rpc.status import peer_errors
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub


@asynccontextmanager
async def coordinator_at(address: str) -> AsyncIterator[CoordinatorServiceStub]:
    """A stub; inside, gRPC errors become SpecpairErrors, and an absent coordinator a CommandError."""
    channel = connect(address)
    try:
        with peer_errors():
            yield CoordinatorServiceStub(channel)
    except PeerUnavailableError as error:
        if "code" not in error.metadata:  # the coordinator's own words, about a peer of its own or about its start
            raise
        raise CommandError(f"the coordinator at {address} cannot be reached; `specpair up` starts one") from None
    finally:
        await channel.close()
