"""Measures what a fault costs running requests: the gaps between their messages, in seconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from tests.faults.client import ask
from tests.faults.cluster import Cluster
from tests.faults.workload import Case, Variation

WARM_SECONDS = 2.0
SETTLE_SECONDS = 3.0
STOPPED_SECONDS = 12.0
"""Longer than the draft's timeout, so that a request that waited for it more than once shows."""
ASKING = Variation(num_speculative_tokens=3, deadline_seconds=300.0)


@dataclass(frozen=True, kw_only=True)
class DraftStop:
    """All drafts were stopped: the gaps of the slowest request, in seconds."""

    usual_gap: float
    """The longest gap before."""
    longest_gap: float
    second_longest_gap: float
    """Of any one stream: the deadline of a draft may be paid once."""
    median_longest_gap: float


@dataclass(frozen=True, kw_only=True)
class TargetRestart:
    """All targets were killed and restarted: seconds from the first healthy one."""

    to_first_stream: float
    to_last_stream: float


class Pulse:
    """When messages with tokens came, by stream."""

    def __init__(self, count: int):
        self.times: list[list[float]] = [[] for _ in range(count)]

    def gaps_since(self, start: float) -> list[list[float]]:
        """Of each stream, longest first; the first gap begins at `start`, the last one ends now."""
        now = time.monotonic()
        all_times = ([start, *(moment for moment in times if moment > start), now] for times in self.times)
        return [sorted((b - a for a, b in pairwise(times)), reverse=True) for times in all_times]

    def first_since(self, start: float) -> list[float | None]:
        """Of each stream, seconds from `start` to its next message; None if it had none yet."""
        return [next((moment - start for moment in times if moment > start), None) for times in self.times]


async def measure_draft_stop(cluster: Cluster, cases: Sequence[Case], streams: int) -> DraftStop:
    """SIGSTOP for every draft under that many streams."""
    async with pulsing(cluster.stub, cases, streams) as pulse:
        start = time.monotonic()
        await asyncio.sleep(WARM_SECONDS)
        usual = pulse.gaps_since(start)
        stopped_at = time.monotonic()
        for peer in cluster.drafts:
            peer.instance.stop()
        try:
            await asyncio.sleep(STOPPED_SECONDS)
            gaps = pulse.gaps_since(stopped_at)
        finally:
            for peer in cluster.drafts:
                peer.instance.go_on()
        await asyncio.sleep(SETTLE_SECONDS)
    return DraftStop(
        usual_gap=max(one[0] for one in usual),
        longest_gap=max(one[0] for one in gaps),
        second_longest_gap=max(one[1] for one in gaps if len(one) > 1),
        median_longest_gap=median(one[0] for one in gaps),
    )


async def measure_target_restart(cluster: Cluster, cases: Sequence[Case], streams: int) -> TargetRestart:
    """SIGKILL for every target under that many streams, and a start of each."""
    async with pulsing(cluster.stub, cases, streams) as pulse:
        await asyncio.sleep(WARM_SECONDS)
        await asyncio.gather(*(peer.instance.kill() for peer in cluster.targets))
        for peer in cluster.targets:
            await peer.instance.start()
        waits = [asyncio.create_task(peer.instance.wait_until_ready()) for peer in cluster.targets]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        healthy_at = time.monotonic()
        await asyncio.gather(*waits)
        async with asyncio.timeout(120):
            while None in (firsts := pulse.first_since(healthy_at)):
                await asyncio.sleep(0.01)
        await asyncio.sleep(SETTLE_SECONDS)
    times = [first for first in firsts if first is not None]
    return TargetRestart(to_first_stream=min(times), to_last_stream=max(times))


@asynccontextmanager
async def pulsing(stub: Any, cases: Sequence[Case], streams: int) -> AsyncIterator[Pulse]:
    """Streams that ask one request after the other, with speculation, for as long as the body runs."""
    pulse = Pulse(streams)

    async def follow(index: int) -> None:
        case = cases[index % len(cases)]
        while True:
            told = await ask(stub, case, ASKING, pulse.times[index].append)
            if told.is_violation:
                raise AssertionError(f"a request failed: {told.status}")
            case = replace(case, seed=case.seed + 2)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(index)) for index in range(streams)]
        yield pulse
        for task in tasks:
            task.cancel()
