"""Injects faults under load, and reads what remains afterwards."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.faults.breaking import break_process, break_way
from tests.faults.cluster import Cluster
from tests.faults.history import Expected
from tests.faults.options import Options
from tests.faults.readings import Held, Reading, read_process, wait_until_empty
from tests.faults.schedule import PROCESS_KINDS, STOPS, WAY_KINDS, Event, Kind, events
from tests.faults.streams import Streams
from tests.faults.workload import Case

READING_SECONDS = 5.0
RECOVERY_SECONDS = 60.0
"""Longest silence of a stream after the last fault, on a busy machine."""
EMPTY_SECONDS = 120.0
"""Longest time that services may keep sequences that are no longer needed."""

Say = Callable[[str], None]


@dataclass(kw_only=True)
class Outcome:
    """The faults injected, and the resources that processes held."""

    process_events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By victim and kind."""
    way_events: Counter[tuple[str, str]] = field(default_factory=Counter)
    before: list[Reading] = field(default_factory=list)
    during: list[Reading] = field(default_factory=list)
    after: list[Reading] = field(default_factory=list)
    held_after: dict[str, Held] = field(default_factory=dict)
    seconds: float = 0.0


class FaultRun:
    """Injects faults into a cluster under load."""

    def __init__(self, cluster: Cluster, options: Options, say: Say):
        self._cluster = cluster
        self._options = options
        self._say = say
        self._enough = asyncio.Event()
        self.outcome = Outcome()

    async def run(self, cases: list[Case], expected: dict[tuple[str, int], Expected]) -> Streams:
        """Runs; returns what the clients received. Raises InstanceError if a service does not restart."""
        options, outcome = self._options, self.outcome
        streams = Streams(
            self._cluster.stub,
            cases,
            expected,
            options.seed,
            options.patience,
            options.cancels,
            options.break_coordinator,
        )
        outcome.before = self._read_all()
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch(streams, start))
            await self._load_and_break(streams)
            watcher.cancel()
        outcome.seconds = time.monotonic() - start
        outcome.held_after = await wait_until_empty([peer.instance for peer in self._cluster.peers], EMPTY_SECONDS)
        outcome.after = self._read_all()
        return streams

    async def _load_and_break(self, streams: Streams) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(streams.run(self._options.streams))
            await self._break_everything()
            await streams.wait_until_recovered(self._options.streams, RECOVERY_SECONDS)
            streams.end()

    async def _break_everything(self) -> None:
        """Each process and each connection has its own sequence of faults, until there were enough process faults."""
        kinds = STOPS if self._options.no_kills else PROCESS_KINDS
        outcome = self.outcome
        if not self._options.events:
            return
        async with asyncio.TaskGroup() as group:
            clock = group.create_task(self._end_in_time())
            async with asyncio.TaskGroup() as lanes:
                if self._options.break_coordinator:
                    name, act = "coordinator", partial(break_process, self._cluster.coordinator)
                    lanes.create_task(self._lane(name, kinds, act, outcome.process_events, self._options.mean_pause))
                for peer in self._cluster.peers:
                    name, pause = peer.instance.name, self._options.mean_pause
                    process, way = partial(break_process, peer.instance), partial(break_way, peer.way)
                    lanes.create_task(self._lane(name, kinds, process, outcome.process_events, pause))
                    lanes.create_task(self._lane(f"way to {name}", WAY_KINDS, way, outcome.way_events, 2 * pause))
            clock.cancel()

    async def _lane(
        self,
        victim: str,
        kinds: dict[Kind, int],
        act: Callable[[Event], Awaitable[None]],
        counts: Counter[tuple[str, str]],
        mean_pause: float,
    ) -> None:
        """Injects the faults of one victim, one after the other."""
        options = self._options
        for event in events(options.seed, victim, kinds, mean_pause, options.longest_fault):
            try:
                async with asyncio.timeout(event.pause_seconds):
                    await self._enough.wait()
                return
            except TimeoutError:
                await act(event)
            counts[victim, event.kind] += 1
            if self.outcome.process_events.total() >= options.events:
                self._enough.set()

    async def _end_in_time(self) -> None:
        await asyncio.sleep(self._options.most_minutes * 60)
        self._enough.set()

    async def _watch(self, streams: Streams, start: float) -> None:
        """Reads the processes and prints a progress line at intervals."""
        while True:
            await asyncio.sleep(READING_SECONDS)
            self.outcome.during += self._read_all()
            outcome, difference = self.outcome, streams.difference
            self._say(
                f"{time.monotonic() - start:6.0f} s  {outcome.process_events.total()} process faults, "
                f"{outcome.way_events.total()} connection faults, {streams.request_count} requests, "
                f"{difference.compared} tokens, {streams.violation_count} violations"
            )

    def _read_all(self) -> list[Reading]:
        readings = (read_process(instance) for instance in self._cluster.instances)
        return [reading for reading in readings if reading is not None]
