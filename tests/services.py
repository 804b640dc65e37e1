"""Real services for tests: real models, real gRPC on loopback, in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from draft_service.drafter import Drafter
from draft_service.serve import open_draft
from specpair.engine.config import EngineConfig
from specpair.rpc.client import connect
from specpair.rpc.config import ServerConfig
from specpair.rpc.server import ServiceServer
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from specpair.v1.target_service_pb2_grpc import TargetServiceStub
from target_service.serve import open_target
from target_service.verifier import Verifier


@dataclass
class RunningModel:
    """A draft or target service with a client."""

    address: str
    host: Drafter | Verifier
    channel: grpc.aio.Channel
    sequences: Any
    hot: Any
    """Stub of DraftService or TargetService."""

    async def check_clean(self) -> None:
        """No sequence is left, every block is free, the cache's invariants hold."""
        await self.host.engine.settle()
        await self.host.engine.check_integrity()
        info = self.host.info()
        assert info.sequence_count == 0
        assert info.free_block_count == info.block_count


def engine_config(folder: Path, **changes: Any) -> EngineConfig:
    """Small limits and float32."""
    return EngineConfig(**{"model": str(folder), "dtype": "float32", "device": "cpu", "block_size": 4, **changes})


@asynccontextmanager
async def running_draft(config: EngineConfig) -> AsyncIterator[RunningModel]:
    async with running(open_draft, DraftServiceStub, config) as model:
        yield model


@asynccontextmanager
async def running_target(config: EngineConfig) -> AsyncIterator[RunningModel]:
    async with running(open_target, TargetServiceStub, config) as model:
        yield model


@asynccontextmanager
async def running(open_service: Any, stub: Any, config: EngineConfig) -> AsyncIterator[RunningModel]:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0))
    port = await server.start()
    try:
        async with open_service(server, config) as host:
            await server.set_ready(True)
            address = f"127.0.0.1:{port}"
            async with connect(address) as channel:
                yield RunningModel(address, host, channel, SequenceServiceStub(channel), stub(channel))
            await server.stop()
    finally:
        await server.stop()
