"""Two coordinators over the same draft and target, one of them killed: their clients lose nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from specpair.client.channel import channel_options, connect
from specpair.client.resuming import generate_tokens
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.faults.balancer import balancer
from tests.faults.cluster import free_port
from tests.faults.instance import Instance
from tests.repeatable_requests import repeatable_requests
from tests.tiny_models import make_model, make_variation

pytestmark = pytest.mark.timeout(400)

COUNT = 240
PATIENCE = 120.0
"""Seconds; on a machine with other work everything takes its time."""
MOST_STREAMS = 12
PACED = ["--pace", "20"]
"""An output takes seconds, however fast the machine is: it is still under way when its coordinator is killed."""
COMMON = ["--dtype", "float32", "--device", "cpu", "--threads", "1", "--metrics-port", "0"]
REQUESTS = repeatable_requests(COUNT)


@pytest.fixture(scope="module")
async def coordinators(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Instance]]:
    folder = tmp_path_factory.mktemp("services")
    target_model = make_model(folder / "models" / "target", "qwen3", seed=1, max_position_embeddings=512)
    draft_model = make_variation(folder / "models" / "draft", target_model, spread=0.05)
    target = service("target", folder, "target", "--model", str(target_model), "--deterministic", *PACED, *COMMON)
    draft = service("draft", folder, "draft", "--model", str(draft_model), *COMMON)
    pair = ["--target", target.address, "--draft", draft.address]
    both = [service(f"coordinator-{i}", folder, "coordinator", *pair, "--http-port", "0") for i in (1, 2)]
    instances = [target, draft, *both]
    try:
        for instance in instances:
            await instance.start()
        for instance in instances:
            await instance.wait_until_ready()
        yield both
    finally:
        for instance in instances:
            await instance.clean_up()


def service(name: str, folder: Path, *arguments: str) -> Instance:
    return Instance(name, arguments, free_port(), folder)


Stubs = Callable[[], CoordinatorServiceStub]
"""A stub for the next stream."""


@asynccontextmanager
async def round_robin(addresses: list[str]) -> AsyncIterator[Stubs]:
    """One channel with all addresses: gRPC sends each call to the next coordinator that is there."""
    options = [*channel_options(), ("grpc.lb_policy_name", "round_robin")]
    async with grpc.aio.insecure_channel("ipv4:" + ",".join(addresses), options=options) as channel:
        stub = CoordinatorServiceStub(channel)
        yield lambda: stub


@asynccontextmanager
async def behind_a_balancer(addresses: list[str]) -> AsyncIterator[Stubs]:
    """A channel for each stream, all of which know the balancer's address alone."""
    channels: list[grpc.aio.Channel] = []

    def stub(address: str) -> CoordinatorServiceStub:
        channels.append(connect(address))
        return CoordinatorServiceStub(channels[-1])

    async with balancer(addresses) as address:
        try:
            yield lambda: stub(address)
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))


class Reader:
    """One stream, until its end."""

    def __init__(self, stub: CoordinatorServiceStub, request: pb.GenerateTokensRequest):
        self.request = request
        self.token_ids: list[int] = []
        self.resumed_count = 0
        """Tokens that it had when its last call began."""
        self.has_begun = asyncio.Event()
        self._stub = stub

    async def read(self) -> None:
        async for response in generate_tokens(self._stub, self.request, patience=PATIENCE):
            self.token_ids += [token.id for token in response.tokens]
            self.resumed_count = response.summary.resumed_token_count
            self.has_begun.set()


async def request_count(coordinator: Instance) -> int:
    """Requests that run there now."""
    channel = connect(coordinator.address)
    try:
        info = await CoordinatorServiceStub(channel).GetPairInfo(pb.GetPairInfoRequest(), timeout=PATIENCE)
        return info.request_count
    finally:
        await channel.close()


async def whole_texts(coordinator: Instance) -> list[list[int]]:
    channel = connect(coordinator.address)
    try:
        readers = [Reader(CoordinatorServiceStub(channel), request) for request in REQUESTS]
        await asyncio.gather(*(reader.read() for reader in readers))
        return [reader.token_ids for reader in readers]
    finally:
        await channel.close()


async def open_at_both(stub: Stubs, coordinators: list[Instance], group: asyncio.TaskGroup) -> list[Reader]:
    """Opens streams until each coordinator has one; all have begun."""
    readers: list[Reader] = []
    while not all([await request_count(coordinator) for coordinator in coordinators]):
        assert len(readers) < MOST_STREAMS, "all streams lead to one coordinator"
        readers.append(Reader(stub(), REQUESTS[len(readers) % len(REQUESTS)]))
        group.create_task(readers[-1].read())
        await readers[-1].has_begun.wait()
    return readers


@pytest.mark.few_cases("behind_a_balancer")
@pytest.mark.parametrize("through", [round_robin, behind_a_balancer])
async def test_streams_of_a_killed_coordinator_go_on_at_the_other(
    coordinators: list[Instance], through: Callable[[list[str]], AbstractAsyncContextManager[Stubs]]
) -> None:
    first, second = coordinators
    whole = await whole_texts(first)
    assert all(len(token_ids) == COUNT for token_ids in whole)
    try:
        async with (
            through([first.address, second.address]) as stub,
            asyncio.timeout(PATIENCE),
            asyncio.TaskGroup() as group,
        ):
            readers = await open_at_both(stub, coordinators, group)
            await second.kill()
        assert [reader.token_ids for reader in readers] == [whole[REQUESTS.index(r.request)] for r in readers]
        moved = [reader for reader in readers if reader.resumed_count]
        assert 0 < len(moved) < len(readers), "each had a stream, and one alone was killed"
    finally:
        await second.clean_up()
        await second.start()
        await second.wait_until_ready()
