"""Requests go to whichever target is there: real processes, killed one after the other."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.cluster import ClusterConfig, running_cluster
from tests.faults.pairs import find_pair
from tests.faults.recovery import Pulse, pulsing
from tests.faults.workload import make_cases

STREAMS = 6
PATIENCE = 40.0


async def wait_for_news(pulse: Pulse) -> None:
    """Until every stream has got something more."""
    start = asyncio.get_running_loop().time()
    async with asyncio.timeout(PATIENCE):
        while None in pulse.first_since(start):
            await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_a_target_that_came_back_is_gone_to_when_the_other_dies(tmp_path: Path) -> None:
    """Long requests, so that no new one finds out in their place that the first target answers again."""
    pair = find_pair("tiny", tmp_path)
    cases = make_cases(seed=5, count=STREAMS, vocab_size=pair.vocab_size, max_tokens=900, least_tokens=900)
    config = ClusterConfig(
        folder=tmp_path, target_model=str(pair.target), draft_model=str(pair.draft), target_count=2, draft_count=0
    )
    async with running_cluster(config) as cluster, pulsing(cluster.stub, cases, STREAMS) as pulse:
        first, second = (peer.instance for peer in cluster.targets)
        await wait_for_news(pulse)
        await second.kill()
        await wait_for_news(pulse)
        await second.start()
        await second.wait_until_ready()
        await asyncio.sleep(1.0)
        await first.kill()
        await wait_for_news(pulse)
