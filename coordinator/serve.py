"""The coordinator as a process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client.registry import CollectorRegistry

from coordinator.config import CoordinatorConfig
from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from coordinator.pair import connect_pair
from coordinator.service import CoordinatorServicer
from coordinator.serving.serving import Serving
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer, run_service
from specpair.v1.coordinator_service_pb2_grpc import add_CoordinatorServiceServicer_to_server


def serve(config: CoordinatorConfig) -> None:
    """Serves until SIGINT or SIGTERM. Exits with status 1 if the pair cannot be served."""
    metrics = service_registry("coordinator")

    @asynccontextmanager
    async def build(server: ServiceServer) -> AsyncIterator[None]:
        async with http_front_end(config.http, server, metrics) as front_end, connect_pair(config, metrics) as pair:
            serving = Serving(pair)
            add_CoordinatorServiceServicer_to_server(CoordinatorServicer(serving), server)
            server.drain_first(drain(serving, front_end))
            if front_end is not None:
                front_end.set_ready(serving)
            yield

    run_service(config.server, build, "coordinator", metrics)


def drain(serving: Serving, front_end: FrontEnd | None) -> Callable[[float], Awaitable[None]]:
    """Drains requests before the servers stop. Meanwhile both front ends refuse new requests."""

    async def drain(within: float) -> None:
        if front_end is not None:
            front_end.is_stopping = True
        await serving.drain(within)

    return drain


@asynccontextmanager
async def http_front_end(
    config: HttpConfig | None, server: ServiceServer, metrics: CollectorRegistry
) -> AsyncIterator[FrontEnd | None]:
    """The HTTP front end, if configured. It stops together with the gRPC server. Raises BindError."""
    if config is None:
        yield None
        return
    front_end = FrontEnd(config=config, registry=metrics)
    http = HttpServer(front_end)
    front_end.port = await http.start()
    server.stop_together(http.stop)
    try:
        yield front_end
    finally:
        await http.stop()
