"""The target service as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specpair.engine.config import EngineConfig
from specpair.rpc.config import ServerConfig
from specpair.rpc.sequence_servicer import SequenceServicer
from specpair.rpc.server import ServiceServer, run_service
from specpair.v1.sequence_service_pb2_grpc import add_SequenceServiceServicer_to_server
from specpair.v1.target_service_pb2_grpc import add_TargetServiceServicer_to_server
from target_service.servicer import TargetServicer
from target_service.verifier import Verifier


@asynccontextmanager
async def open_target(server: ServiceServer, config: EngineConfig) -> AsyncIterator[Verifier]:
    """Loads the model, adds the servicers, and stops the engine at the end."""
    verifier = await Verifier.start(config)
    try:
        add_TargetServiceServicer_to_server(TargetServicer(verifier), server)
        add_SequenceServiceServicer_to_server(SequenceServicer(verifier), server)
        yield verifier
    finally:
        await verifier.stop()


def serve(engine: EngineConfig, server: ServerConfig) -> None:
    """Serves until a signal comes."""
    run_service(server, lambda running: open_target(running, engine), "target service")
