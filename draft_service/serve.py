"""The draft service as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from draft_service.config import DraftConfig
from draft_service.host import DraftHost
from draft_service.servicer import DraftServicer
from specpair.rpc.config import ServerConfig
from specpair.rpc.sequence_servicer import SequenceServicer
from specpair.rpc.server import ServiceServer, run_service
from specpair.v1.draft_service_pb2_grpc import add_DraftServiceServicer_to_server
from specpair.v1.sequence_service_pb2_grpc import add_SequenceServiceServicer_to_server


@asynccontextmanager
async def open_draft(server: ServiceServer, config: DraftConfig) -> AsyncIterator[DraftHost]:
    """Loads what there is to load, adds the servicers, and stops the engine at the end."""
    host = await DraftHost.start(config)
    try:
        add_DraftServiceServicer_to_server(DraftServicer(host), server)
        add_SequenceServiceServicer_to_server(SequenceServicer(host), server)
        yield host
    finally:
        await host.stop()


def serve(config: DraftConfig, server: ServerConfig) -> None:
    """Serves until a signal comes."""
    run_service(server, lambda running: open_draft(running, config), "draft service")
