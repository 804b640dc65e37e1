"""The coordinator as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from coordinator.service import CoordinatorServicer
from coordinator.serving import Serving
from specpair.rpc.server import ServiceServer, run_service
from specpair.v1.coordinator_service_pb2_grpc import add_CoordinatorServiceServicer_to_server


def serve(config: CoordinatorConfig) -> None:
    """Serves until SIGINT or SIGTERM. Exits with status 1 if the pair cannot be served."""

    @asynccontextmanager
    async def build(server: ServiceServer) -> AsyncIterator[None]:
        async with connect_pair(config) as pair:
            add_CoordinatorServiceServicer_to_server(CoordinatorServicer(Serving(pair)), server)
            yield

    run_service(config.server, build, "coordinator")
