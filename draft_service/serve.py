"""The draft service as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from prometheus_client.registry import CollectorRegistry

from draft_service.config import DraftConfig
from draft_service.host import DraftHost
from draft_service.servicer import DraftServicer
from draft_service.translation.metrics import TranslationCollector
from specpair.sequences.leases import keeping_leases
from specpair.sequences.sequence_metrics import add_sequence_metrics
from specpair.server.config import ServerConfig
from specpair.server.metrics_endpoint import metrics_endpoint
from specpair.server.metrics_registry import service_registry
from specpair.server.sequence_servicer import SequenceServicer
from specpair.server.server import ServiceServer, run_service
from specpair.v1.draft_service_pb2_grpc import add_DraftServiceServicer_to_server
from specpair.v1.sequence_service_pb2_grpc import add_SequenceServiceServicer_to_server


@asynccontextmanager
async def open_draft(
    server: ServiceServer, config: DraftConfig, registry: CollectorRegistry | None = None
) -> AsyncIterator[DraftHost]:
    """Loads model and tables, if configured, and adds servicers and metrics. Stops the engine at the end."""
    host = await DraftHost.start(config)
    model = host.model
    try:
        if registry is not None:
            add_sequence_metrics(registry, host.sequences)
            if model is not None:
                model.add_metrics(registry)
                registry.register(TranslationCollector(lambda: host.translations.facts))
        add_DraftServiceServicer_to_server(DraftServicer(host), server)
        add_SequenceServiceServicer_to_server(SequenceServicer(host), server)
        device = nullcontext() if model is None else model.watching_device(server)
        async with keeping_leases(host.sequences), device:
            yield host
    finally:
        await host.stop()


def serve(config: DraftConfig, server: ServerConfig) -> None:
    """Serves until a signal arrives."""
    registry = service_registry("draft")

    @asynccontextmanager
    async def build(running: ServiceServer) -> AsyncIterator[None]:
        async with (
            metrics_endpoint(registry, server, is_ready=lambda: running.is_ready),
            open_draft(running, config, registry),
        ):
            yield

    run_service(server, build, "draft service", registry)
