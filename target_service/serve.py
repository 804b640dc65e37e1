"""The target service as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.registry import CollectorRegistry

from specpair.engine_config import EngineConfig
from specpair.rank import run_rank
from specpair.sequences.leases import keeping_leases
from specpair.sequences.sequence_metrics import add_sequence_metrics
from specpair.server.config import ServerConfig
from specpair.server.logs import configure_logging
from specpair.server.metrics_endpoint import metrics_endpoint
from specpair.server.metrics_registry import service_registry
from specpair.server.sequence_servicer import SequenceServicer
from specpair.server.server import ServiceServer, run_service
from specpair.sharding.config import membership_of_environment
from specpair.v1.sequence_service_pb2_grpc import add_SequenceServiceServicer_to_server
from specpair.v1.target_service_pb2_grpc import add_TargetServiceServicer_to_server
from target_service.metrics import ConditionalCallsCollector, LateRowsCollector, MasksCollector, SequelsCollector
from target_service.servicer import TargetServicer
from target_service.verifier import Verifier


@asynccontextmanager
async def open_target(
    server: ServiceServer, config: EngineConfig, registry: CollectorRegistry | None = None
) -> AsyncIterator[Verifier]:
    """Loads the model, and adds servicers and metrics. Stops the engine at the end."""
    verifier = await Verifier.start(config)
    try:
        if registry is not None:
            add_sequence_metrics(registry, verifier.sequences)
            verifier.add_metrics(registry)
            registry.register(ConditionalCallsCollector(verifier.sequences.conditional_calls.outcomes))
            registry.register(LateRowsCollector(verifier.late_outcomes))
            registry.register(SequelsCollector(verifier.sequences.sequel_outcomes))
            registry.register(MasksCollector(verifier.masks))
        add_TargetServiceServicer_to_server(TargetServicer(verifier), server)
        add_SequenceServiceServicer_to_server(SequenceServicer(verifier), server)
        async with keeping_leases(verifier.sequences), verifier.watching_device(server):
            yield verifier
    finally:
        await verifier.stop()


def serve(engine: EngineConfig, server: ServerConfig) -> None:
    """Serves until a signal arrives. A rank of a group other than the first serves nobody: it follows."""
    member = membership_of_environment(engine.tensor_parallel_size) if engine.tensor_parallel_size > 1 else None
    if member is not None and not member.is_leader:
        configure_logging(server.log_format, server.log_level)
        run_rank(engine, member)
    registry = service_registry("target")

    @asynccontextmanager
    async def build(running: ServiceServer) -> AsyncIterator[None]:
        async with (
            metrics_endpoint(registry, server, is_ready=lambda: running.is_ready),
            open_target(running, engine, registry),
        ):
            yield

    run_service(server, build, "target service", registry)
