"""Real services for tests: real models, real gRPC on loopback, in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client.registry import CollectorRegistry

from coordinator.config import CoordinatorConfig
from coordinator.http.front_end import FrontEnd
from coordinator.http_config import HttpConfig
from coordinator.pair import connect_pair
from coordinator.serve import drain, http_front_end
from coordinator.service import CoordinatorServicer
from coordinator.serving.serving import Serving
from draft_service.config import DraftConfig
from draft_service.host import DraftHost
from draft_service.serve import open_draft
from specpair.client.channel import connect
from specpair.engine_config import EngineConfig
from specpair.security.settings import PLAIN, UNPROTECTED, ChannelSecurity, ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub, add_CoordinatorServiceServicer_to_server
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from specpair.v1.target_service_pb2_grpc import TargetServiceStub
from target_service.serve import open_target
from target_service.verifier import Verifier


@dataclass(frozen=True, kw_only=True)
class PairSecurity:
    """How the services of a pair are protected, and how they are reached."""

    models: ServerSecurity = UNPROTECTED
    peers: ChannelSecurity = PLAIN
    coordinator: ServerSecurity = UNPROTECTED
    clients: ChannelSecurity = PLAIN


OPEN = PairSecurity()


@dataclass
class RunningModel:
    """A draft or target service with a client."""

    address: str
    host: DraftHost | Verifier
    channel: grpc.aio.Channel
    sequences: Any
    hot: Any
    """Stub of DraftService or TargetService."""
    stop: Callable[[], Coroutine[Any, Any, None]]
    """Ends the service before its time."""
    registry: CollectorRegistry
    """Of its metrics."""

    async def check_integrity(self) -> None:
        """The cache's invariants hold, if there is one."""
        if not isinstance(self.host, DraftHost) or self.host.model is not None:
            await self.host.engine.check_integrity()

    async def check_clean(self) -> None:
        """No sequence is left, every block is free, the cache's invariants hold."""
        await self.check_integrity()
        info = self.host.info()
        assert info.sequence_count == 0
        assert info.free_block_count == info.block_count


def engine_config(folder: Path, **changes: Any) -> EngineConfig:
    """Small limits and float32."""
    return EngineConfig(**{"model": str(folder), "dtype": "float32", "device": "cpu", "block_size": 4, **changes})


def draft_config(folder: Path, **changes: Any) -> DraftConfig:
    """A draft service with this model."""
    return DraftConfig(engine=engine_config(folder, **changes))


@asynccontextmanager
async def running_draft(
    config: EngineConfig | DraftConfig, security: PairSecurity = OPEN
) -> AsyncIterator[RunningModel]:
    """With the model of an EngineConfig, or whatever else a DraftConfig says."""
    config = DraftConfig(engine=config) if isinstance(config, EngineConfig) else config
    async with running(open_draft, DraftServiceStub, config, security) as model:
        yield model


@asynccontextmanager
async def running_target(config: EngineConfig, security: PairSecurity = OPEN) -> AsyncIterator[RunningModel]:
    async with running(open_target, TargetServiceStub, config, security) as model:
        yield model


@asynccontextmanager
async def running(
    open_service: Any, stub: Any, config: EngineConfig | DraftConfig, security: PairSecurity = OPEN
) -> AsyncIterator[RunningModel]:
    registry = service_registry("draft" if open_service is open_draft else "target")
    own = ServerConfig(port=0, grace_seconds=0.0, security=security.models, max_streams_per_client=64)
    server = ServiceServer(own, registry)
    port = await server.start()
    try:
        async with open_service(server, config, registry) as host:
            await server.set_ready(True)
            address = f"127.0.0.1:{port}"
            async with connect(address, security.peers) as channel:
                clients = (channel, SequenceServiceStub(channel), stub(channel))
                yield RunningModel(address, host, *clients, server.stop, registry)
            await server.stop()
    finally:
        await server.stop()


@dataclass
class RunningPair:
    """Draft, target and coordinator, with a client of the coordinator."""

    draft: RunningModel | None
    target: RunningModel
    coordinator: Any
    """Stub of CoordinatorService."""
    address: str
    """Of the coordinator."""
    http_address: str
    """Of its HTTP front end."""
    front_end: FrontEnd
    stop: Callable[[], Coroutine[Any, Any, None]]
    """Ends the coordinator's servers before their time."""
    drafts: dict[str, RunningModel] = field(default_factory=dict)
    """Several drafts by their names; none if there is one draft at most."""

    async def generate(self, prompt: list[int], max_tokens: int, **options: Any) -> "Generated":
        """Runs one request on token ids; `options` are fields of GenerateTokensRequest or of its sampling."""
        names = pb.DESCRIPTOR.message_types_by_name["GenerateTokensRequest"].fields_by_name
        sampling = {name: options.pop(name) for name in list(options) if name not in names}
        request = pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=prompt), max_tokens=max_tokens, **{"sampling": sampling, **options}
        )
        responses = [response async for response in self.coordinator.GenerateTokens(request)]
        return Generated(
            token_ids=[token.id for response in responses for token in response.tokens],
            origins=[token.origin for response in responses for token in response.tokens],
            text="".join(response.text for response in responses),
            summary=responses[-1].summary,
            rounds=[response.round for response in responses if response.HasField("round")],
        )

    async def check_clean(self) -> None:
        """Both services end with every block free; closing runs in the background, so it is waited for."""
        models = [self.target, *([] if self.draft is None else [self.draft]), *self.drafts.values()]
        async with asyncio.timeout(60):
            while any(len(model.host.sequences) for model in models):
                drop_spares(self.target)
                await asyncio.sleep(0.01)
        for model in models:
            await model.check_clean()


def drop_spares(target: RunningModel) -> None:
    """Texts whose scores nobody waits for any more are kept a while, in case they are asked for again."""
    sequences: Any = target.host.sequences
    for held in [held for held in sequences._held.values() if held.is_spare]:
        sequences.drop(held)


@dataclass
class Generated:
    """What a client got."""

    token_ids: list[int]
    origins: list[pb.TokenOrigin]
    text: str
    summary: pb.GenerationSummary
    rounds: list[pb.RoundReport]
    """If they were asked for."""


@asynccontextmanager
async def running_pair(
    target: EngineConfig,
    draft: EngineConfig | DraftConfig | None = None,
    *,
    security: PairSecurity = OPEN,
    grace_seconds: float = 0.0,
    drafts: Mapping[str, EngineConfig | DraftConfig] | None = None,
    local_drafters: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[RunningPair]:
    """All three services; `options` are fields of CoordinatorConfig, `grace_seconds` is the coordinator's. Several
    drafts have names, and `local_drafters` are named with them."""
    async with AsyncExitStack() as stack:
        target_model = await stack.enter_async_context(running_target(target, security))
        draft_model = await stack.enter_async_context(running_draft(draft, security)) if draft is not None else None
        named = {
            name: await stack.enter_async_context(running_draft(own, security)) for name, own in (drafts or {}).items()
        }
        entries = [f"{name}={model.address}" for name, model in named.items()]
        registry = service_registry("coordinator")
        own = ServerConfig(port=0, grace_seconds=grace_seconds, security=security.coordinator)
        server = ServiceServer(own, registry)
        port = await server.start()
        stack.push_async_callback(server.stop)
        config = CoordinatorConfig(
            server=ServerConfig(port=0),
            http=HttpConfig(port=0, grace_seconds=0.0, security=security.coordinator),
            peer_security=security.peers,
            target_addresses=(target_model.address,),
            draft_addresses=((draft_model.address,) if draft_model else (*entries, *local_drafters)),
            **{"max_requests": 256, **options},
        )
        front_end = await stack.enter_async_context(http_front_end(config.http, server, registry))
        assert front_end is not None
        serving = Serving(await stack.enter_async_context(connect_pair(config, registry)))
        add_CoordinatorServiceServicer_to_server(CoordinatorServicer(serving), server)  # type: ignore[arg-type]
        server.drain_first(drain(serving, front_end))
        await server.set_ready(True)
        front_end.set_ready(serving)
        address = f"127.0.0.1:{port}"
        stub = CoordinatorServiceStub(await stack.enter_async_context(connect(address, security.clients)))
        yield RunningPair(
            draft_model, target_model, stub, address, f"127.0.0.1:{front_end.port}", front_end, server.stop, named
        )
