"""Two coordinators over the same draft and target, one of them killed: their clients lose nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from specpair.client.channel import channel_options, connect
from specpair.client.resuming import generate_tokens
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.faults.balancer import balancer
from tests.faults.client import ask
from tests.faults.cluster import Cluster, ClusterConfig, running_cluster
from tests.faults.pairs import find_pair
from tests.faults.recovery import ASKING
from tests.faults.reference import PLAIN
from tests.faults.workload import Case, make_cases

STREAMS = 6
TOKENS = 300
PATIENCE = 60.0
"""Seconds; on a machine with other work everything takes its time."""
CASES = make_cases(seed=9, count=STREAMS, vocab_size=64, max_tokens=TOKENS, least_tokens=TOKENS)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    pair = find_pair("tiny", folder)
    config = ClusterConfig(
        folder=folder, target_model=str(pair.target), draft_model=str(pair.draft), coordinator_count=2
    )
    async with running_cluster(config) as cluster:
        yield cluster


@asynccontextmanager
async def round_robin(addresses: list[str]) -> AsyncIterator[list[CoordinatorServiceStub]]:
    """One channel with all addresses: gRPC sends each call to the next coordinator that is there."""
    options = [*channel_options(), ("grpc.lb_policy_name", "round_robin")]
    async with grpc.aio.insecure_channel("ipv4:" + ",".join(addresses), options=options) as channel:
        await asyncio.wait_for(channel.channel_ready(), PATIENCE)
        yield [CoordinatorServiceStub(channel)] * STREAMS


@asynccontextmanager
async def behind_a_balancer(addresses: list[str]) -> AsyncIterator[list[CoordinatorServiceStub]]:
    """A client for each stream, all of which know the balancer's address alone."""
    async with balancer(addresses) as address:
        channels = [connect(address) for _ in range(STREAMS)]
        try:
            yield [CoordinatorServiceStub(channel) for channel in channels]
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))


class Reader:
    """One stream, until its end."""

    def __init__(self, stub: CoordinatorServiceStub, case: Case):
        self.token_ids: list[int] = []
        self.resumed_count = 0
        """Tokens that the last of its calls went on behind."""
        self.is_under_way = asyncio.Event()
        self._stub = stub
        self._request = case.request(ASKING)

    async def read(self) -> None:
        async for response in generate_tokens(self._stub, self._request, patience=PATIENCE):
            self.token_ids += [token.id for token in response.tokens]
            self.resumed_count = response.summary.resumed_token_count
            if len(self.token_ids) > TOKENS // 10:
                self.is_under_way.set()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("through", [round_robin, behind_a_balancer])
async def test_streams_of_a_killed_coordinator_go_on_at_the_other(cluster: Cluster, through: object) -> None:
    whole = [(await ask(cluster.stub, case, PLAIN)).outputs[0].token_ids for case in CASES]
    first, second = cluster.coordinators
    async with through([first.address, second.address]) as stubs:  # type: ignore[operator]
        readers = [Reader(stub, case) for stub, case in zip(stubs, CASES, strict=True)]
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.read())
            await asyncio.gather(*(reader.is_under_way.wait() for reader in readers))
            await second.kill()
    try:
        assert [tuple(reader.token_ids) for reader in readers] == whole
        moved = [reader for reader in readers if reader.resumed_count]
        assert 0 < len(moved) < STREAMS, "both coordinators had streams, and one of them alone was killed"
    finally:
        await second.start()
        await second.wait_until_ready()
