"""Real processes: targets, drafts and a coordinator, each peer of the coordinator behind a fault proxy."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specpair.client.channel import connect
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.faults.instance import Instance
from tests.faults.proxy import FaultProxy, fault_proxy

LEASE_SECONDS = 30
"""The lease of sequences that could not be closed: short, so that it ends within a run."""
ENDLESS_LEASE_SECONDS = 86_400
"""Without kills, each sequence has to be closed by its caller."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """What to start. Flags are those of `specpair serve`."""

    folder: Path
    """For logs."""
    target_model: str
    draft_model: str
    target_count: int = 1
    draft_count: int = 1
    model_flags: list[str] = field(default_factory=lambda: ["--sequence-lease", str(LEASE_SECONDS)])
    """Of draft and target."""
    target_flags: list[str] = field(default_factory=lambda: ["--deterministic"])
    draft_flags: list[str] = field(default_factory=list)
    coordinator_flags: list[str] = field(default_factory=list)
    are_drafts_named: bool = False
    """Whether each draft is one of its own, under its name; else they are instances of one."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A draft or target, and the fault proxy between the coordinator and it."""

    instance: Instance
    way: FaultProxy


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Running processes. Made by `running_cluster`."""

    targets: list[Peer]
    drafts: list[Peer]
    coordinator: Instance
    stub: Any
    """Of CoordinatorService."""

    @property
    def peers(self) -> list[Peer]:
        return [*self.targets, *self.drafts]

    @property
    def instances(self) -> list[Instance]:
        return [self.coordinator, *(peer.instance for peer in self.peers)]


@asynccontextmanager
async def running_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """Starts all services and waits until they are ready. All are stopped at the end."""
    async with AsyncExitStack() as stack:
        targets = [await _start_peer("target", index, config, stack) for index in range(config.target_count)]
        drafts = [await _start_peer("draft", index, config, stack) for index in range(config.draft_count)]
        flags = ["coordinator", "--target", _ways(targets), "--draft", _drafts(drafts, config) or "none"]
        flags += ["--http-port", "0"]
        flags += config.coordinator_flags
        coordinator = await _start("coordinator", flags, config, stack)
        instances = [coordinator, *(peer.instance for peer in (*targets, *drafts))]
        async with asyncio.TaskGroup() as group:
            for instance in instances:
                group.create_task(instance.wait_until_ready())
        channel = connect(coordinator.address)
        stack.push_async_callback(channel.close)
        yield Cluster(targets=targets, drafts=drafts, coordinator=coordinator, stub=CoordinatorServiceStub(channel))


def _ways(peers: list[Peer]) -> str:
    return ",".join(peer.way.address for peer in peers)


def _drafts(peers: list[Peer], config: ClusterConfig) -> str:
    if not config.are_drafts_named:
        return _ways(peers)
    return ",".join(f"{peer.instance.name}={peer.way.address}" for peer in peers)


async def _start_peer(role: str, index: int, config: ClusterConfig, stack: AsyncExitStack) -> Peer:
    model = config.target_model if role == "target" else config.draft_model
    flags = [role, "--model", model, "--dtype", "float32", "--device", "cpu", "--metrics-port", "0"]
    flags += config.model_flags + (config.target_flags if role == "target" else config.draft_flags)
    instance = await _start(f"{role}-{index + 1}", flags, config, stack)
    return Peer(instance=instance, way=await stack.enter_async_context(fault_proxy(instance.address)))


async def _start(name: str, flags: list[str], config: ClusterConfig, stack: AsyncExitStack) -> Instance:
    instance = Instance(name, flags, free_port(), config.folder)
    stack.push_async_callback(instance.clean_up)
    await instance.start()
    return instance


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
