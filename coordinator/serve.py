"""The coordinator as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.config import CoordinatorConfig
from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.pair import connect_pair
from coordinator.service import CoordinatorServicer
from coordinator.serving import Serving
from specpair.rpc.server import ServiceServer, run_service
from specpair.v1.coordinator_service_pb2_grpc import add_CoordinatorServiceServicer_to_server


def serve(config: CoordinatorConfig) -> None:
    """Serves until SIGINT or SIGTERM. Exits with status 1 if the pair cannot be served."""

    @asynccontextmanager
    async def build(server: ServiceServer) -> AsyncIterator[None]:
        async with serve_http(config, server) as front_end, connect_pair(config) as pair:
            serving = Serving(pair)
            add_CoordinatorServiceServicer_to_server(CoordinatorServicer(serving), server)
            if front_end is not None:
                front_end.set_ready(serving)
            yield

    run_service(config.server, build, "coordinator")


@asynccontextmanager
async def serve_http(config: CoordinatorConfig, server: ServiceServer) -> AsyncIterator[FrontEnd | None]:
    """The HTTP front end, if there shall be one; it stops together with the server. Raises BindError."""
    if config.http is None:
        yield None
        return
    front_end = FrontEnd(config=config.http)
    http = HttpServer(front_end)
    await http.start()
    server.stop_together(http.stop)
    try:
        yield front_end
    finally:
        await http.stop()
