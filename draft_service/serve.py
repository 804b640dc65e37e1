"""The draft service as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from draft_service.drafter import Drafter
from draft_service.servicer import DraftServicer
from specpair.engine.config import EngineConfig
from specpair.rpc.config import ServerConfig
from specpair.rpc.sequence_servicer import SequenceServicer
from specpair.rpc.server import ServiceServer, run_service
from specpair.v1.draft_service_pb2_grpc import add_DraftServiceServicer_to_server
from specpair.v1.sequence_service_pb2_grpc import add_SequenceServiceServicer_to_server


@asynccontextmanager
async def open_draft(server: ServiceServer, config: EngineConfig) -> AsyncIterator[Drafter]:
    """Loads the model, adds the servicers, and stops the engine at the end."""
    drafter = await Drafter.start(config)
    try:
        add_DraftServiceServicer_to_server(DraftServicer(drafter), server)
        add_SequenceServiceServicer_to_server(SequenceServicer(drafter), server)
        yield drafter
    finally:
        await drafter.stop()


def serve(engine: EngineConfig, server: ServerConfig) -> None:
    """Serves until a signal comes."""
    run_service(server, lambda running: open_draft(running, engine), "draft service")
