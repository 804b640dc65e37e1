"""Real processes, killed and stopped one after the other: who goes where, and what comes of it."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.client import ask
from tests.faults.cluster import Cluster, ClusterConfig, running_cluster
from tests.faults.pairs import find_pair
from tests.faults.recovery import ASKING, Pulse, pulsing
from tests.faults.reference import PLAIN, read_reference
from tests.faults.report import DRAFT_DEADLINE_SECONDS
from tests.faults.streams import Streams
from tests.faults.workload import Case, make_cases

STREAMS = 6
PATIENCE = 60.0
"""Seconds; on a machine with other work everything takes its time."""
LONG = make_cases(seed=5, count=STREAMS, vocab_size=64, max_tokens=900, least_tokens=900)
"""Requests that outlast a test, so that no new one finds out in their place who is there."""
SHORT = make_cases(seed=6, count=2, vocab_size=64, max_tokens=240, least_tokens=240)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    pair = find_pair("tiny", folder)
    config = ClusterConfig(
        folder=folder, target_model=str(pair.target), draft_model=str(pair.draft), target_count=2, draft_count=1
    )
    async with running_cluster(config) as cluster:
        yield cluster


async def wait_for_news(pulse: Pulse) -> None:
    """Until every stream has got something more."""
    start = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while None in pulse.first_since(start):
            await asyncio.sleep(0.02)


async def wait_until_proposed(cluster: Cluster, case: Case) -> None:
    """Until a request has proposals again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            request = case.request(ASKING)
            request.max_tokens = 8
            responses = [response async for response in cluster.stub.GenerateTokens(request, timeout=PATIENCE)]
            if responses[-1].summary.speculation.draft_token_count:
                return


@pytest.mark.few_cases(1)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_hung", [True, False])
async def test_without_the_draft_every_request_goes_on_and_speculates_again_with_it(
    cluster: Cluster, is_hung: bool
) -> None:
    (draft,) = (peer.instance for peer in cluster.drafts)
    async with pulsing(cluster.stub, LONG, STREAMS) as pulse:
        await wait_for_news(pulse)
        try:
            if is_hung:
                draft.stop()
            else:
                await draft.kill()
            await wait_for_news(pulse)
            begin = time.monotonic()
            for _ in range(4):
                await wait_for_news(pulse)
            assert time.monotonic() - begin < 2 * DRAFT_DEADLINE_SECONDS, "the deadline was paid more than once"
        finally:
            if is_hung:
                draft.go_on()
            else:
                await draft.start()
    await wait_until_proposed(cluster, LONG[0])


@pytest.mark.timeout(240)
async def test_a_hung_target_is_left(cluster: Cluster) -> None:
    for peer in cluster.targets:
        async with pulsing(cluster.stub, LONG, STREAMS) as pulse:
            await wait_for_news(pulse)
            peer.instance.stop()
            try:
                await wait_for_news(pulse)
            finally:
                peer.instance.go_on()


@pytest.mark.timeout(240)
async def test_a_target_that_came_back_is_gone_to_when_the_other_dies(cluster: Cluster) -> None:
    first, second = (peer.instance for peer in cluster.targets)
    async with pulsing(cluster.stub, LONG, STREAMS) as pulse:
        await wait_for_news(pulse)
        await second.kill()
        await wait_for_news(pulse)
        await second.start()
        await second.wait_until_ready()
        await asyncio.sleep(1.0)
        await first.kill()
        await wait_for_news(pulse)
    await first.start()
    await first.wait_until_ready()


@pytest.mark.few_cases()
@pytest.mark.timeout(300)
async def test_a_rolling_restart_of_every_service_loses_nothing(cluster: Cluster) -> None:
    """SIGTERM for one after the other, under load; requests that the coordinator hands back are resumed."""
    streams = Streams(cluster.stub, SHORT, await read_reference(cluster.stub, SHORT), 1, PATIENCE * 3, may_resume=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(streams.run(STREAMS))
        for instance in (*(peer.instance for peer in cluster.peers), cluster.coordinator):
            await instance.terminate()
            assert instance.status == 0, instance.last_lines()
            await instance.start()
            await instance.wait_until_ready()
            await asyncio.sleep(0.5)
        await streams.wait_until_recovered(STREAMS, PATIENCE)
        streams.end()
    assert streams.violations == []
    assert streams.difference.compared > 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
async def test_a_client_goes_on_behind_its_tokens_when_the_coordinator_was_killed(cluster: Cluster, case: Case) -> None:
    whole = (await ask(cluster.stub, case, PLAIN)).outputs[0].token_ids
    received: list[int] = []
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async for response in cluster.stub.GenerateTokens(case.request(ASKING), timeout=PATIENCE):
            received += [token.id for token in response.tokens]
            if 100 <= len(received) < 110:
                await cluster.coordinator.kill()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert 100 <= len(received) < len(whole)
    await cluster.coordinator.start()
    await cluster.coordinator.wait_until_ready()
    request = pb.GenerateTokensRequest(resumed_token_ids=received)
    request.MergeFrom(case.request(ASKING))
    async with asyncio.timeout(PATIENCE):
        async for response in cluster.stub.GenerateTokens(request, timeout=PATIENCE, wait_for_ready=True):
            received += [token.id for token in response.tokens]
    assert tuple(received) == tuple(whole)
