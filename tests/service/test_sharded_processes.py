"""A target on two ranks as processes: one is killed, the group ends and comes back, and requests lose nothing."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2_grpc

from specpair.client.channel import connect
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.faults.cluster import free_port
from tests.faults.instance import READY_SECONDS, Instance, _is_serving
from tests.repeatable_requests import repeatable_requests
from tests.tiny_models import make_model, make_variation

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
COUNT = 160
PATIENCE = 60.0
COMMON = ["--dtype", "float32", "--device", "cpu", "--threads", "1", "--metrics-port", "0"]
RANKS = ["--tensor-parallel-size", "2"]
REQUESTS = repeatable_requests(COUNT)


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[dict[str, Instance]]:
    target_model = make_model(tmp_path / "models" / "target", seed=1, max_position_embeddings=256)
    draft_model = make_variation(tmp_path / "models" / "draft", target_model, spread=0.05)
    target = Instance("target", ["target", "--model", str(target_model), *RANKS, *COMMON], free_port(), tmp_path)
    draft = Instance("draft", ["draft", "--model", str(draft_model), *COMMON], free_port(), tmp_path)
    flags = ["--target", target.address, "--draft", draft.address, "--http-port", "0", "--target-timeout", "300"]
    coordinator = Instance("coordinator", ["coordinator", *flags], free_port(), tmp_path)
    instances = {"target": target, "draft": draft, "coordinator": coordinator}
    try:
        for instance in instances.values():
            await instance.start()
        for instance in instances.values():
            await instance.wait_until_ready()
        yield instances
    finally:
        for instance in instances.values():
            await instance.clean_up()


def children_of(process: int) -> list[int]:
    """Process ids of the ranks that a leader started."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(word) for path in lists for word in path.read_text().split()]


async def until_gone(process: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while is_running(process):
            await asyncio.sleep(0.02)


def is_running(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


async def until_ended(instance: Instance) -> int:
    async with asyncio.timeout(PATIENCE):
        while (status := instance.status) is None:
            await asyncio.sleep(0.02)
    return status


async def tokens_of(
    stub: CoordinatorServiceStub, request: pb.GenerateTokensRequest, begun: asyncio.Event | None = None
) -> list[int]:
    tokens: list[int] = []
    async for response in stub.GenerateTokens(request, timeout=300.0):
        tokens += [token.id for token in response.tokens]
        if begun is not None and tokens:
            begun.set()
    return tokens


async def start_rank(rank: int, meeting: int, port: int, model: Path) -> Process:
    """`specpair serve target` as one rank of a group that meets at an address, as on several machines."""
    told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "command", "serve", "target", "--model", str(model), "--port", str(port)),
        *(*RANKS, *COMMON),
        cwd=ROOT,
        env={**os.environ, **told, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


async def start_agent(node: int, meeting: int, port: int, model: Path) -> Process:
    """torchrun on one of two machines, as docs/usage.md has it."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
        *("--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(meeting)),
        *("-m", "command", "serve", "target", "--model", str(model), "--port", str(port), *RANKS, *COMMON),
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


async def until_serving(port: int, ranks: list[Process]) -> None:
    channel = connect(f"127.0.0.1:{port}")
    try:
        stub = health_pb2_grpc.HealthStub(channel)
        async with asyncio.timeout(READY_SECONDS):
            while not await _is_serving(stub):
                assert all(rank.returncode is None for rank in ranks), "a rank has ended"
                await asyncio.sleep(0.05)
    finally:
        await channel.close()


@asynccontextmanager
async def coordinator_of(services: dict[str, Instance]) -> AsyncIterator[CoordinatorServiceStub]:
    channel = connect(services["coordinator"].address)
    try:
        yield CoordinatorServiceStub(channel)
    finally:
        await channel.close()


async def test_a_killed_rank_ends_the_group_and_no_request_loses_a_token(services: dict[str, Instance]) -> None:
    target = services["target"]
    async with coordinator_of(services) as stub:
        expected = [await tokens_of(stub, request) for request in REQUESTS]
        assert all(len(tokens) == COUNT for tokens in expected)
        begun = [asyncio.Event() for _ in REQUESTS]
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(tokens_of(stub, *pair)) for pair in zip(REQUESTS, begun, strict=True)]
            await asyncio.gather(*(event.wait() for event in begun))
            (rank,) = children_of(target.pid)
            os.kill(rank, signal.SIGKILL)
            assert await until_ended(target) == 1, target.last_lines()
            await target.start()
        assert [call.result() for call in calls] == expected
    log = target.log_path.read_text()
    assert "rank 1 of 2 ended with status -9" in log or "a pass of the group failed" in log
    (rank,) = children_of(target.pid)
    await target.kill()
    await until_gone(rank)


@pytest.mark.few_cases()
async def test_ranks_that_meet_at_an_address_end_together(tmp_path: Path) -> None:
    """As by torchrun, or on several machines. The leader gets SIGTERM; nobody tells the other rank but the leader."""
    model = make_model(tmp_path / "model", "qwen2", seed=1)
    meeting, port = free_port(), free_port()
    ranks = [await start_rank(rank, meeting, port, model) for rank in range(2)]
    try:
        await until_serving(port, ranks)
        ranks[0].terminate()
        async with asyncio.timeout(PATIENCE):
            assert [await rank.wait() for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            if rank.returncode is None:
                rank.kill()
                await rank.wait()


@pytest.mark.few_cases()
async def test_when_torchrun_loses_a_rank_on_one_machine_the_group_ends_on_both(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "qwen2", seed=1)
    meeting, port = free_port(), free_port()
    agents = [await start_agent(node, meeting, port, model) for node in range(2)]
    try:
        await until_serving(port, agents)
        (rank,) = children_of(agents[1].pid)
        os.kill(rank, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            assert all([await agent.wait() for agent in agents])
        assert not is_running(rank)
    finally:
        for agent in agents:
            if agent.returncode is None:
                agent.terminate()
                await agent.wait()
