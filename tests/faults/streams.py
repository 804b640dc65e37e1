"""Clients that send requests without pause, and what each of them received."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from tests.faults.client import Told, ask
from tests.faults.history import Difference, Expected, compare_all
from tests.faults.workload import Case, vary

MOST_NOTES = 20
VIOLATION_SECONDS = 0.5
"""Pause of a client whose request failed."""


class Streams:
    """Concurrent clients. Each sends a request, reads it to the end, compares the output, and starts again."""

    def __init__(
        self,
        stub: Any,
        cases: Sequence[Case],
        expected: dict[tuple[str, int], Expected],
        seed: int,
        patience: float,
        cancels: float = 0.1,
        may_resume: bool = False,
    ):
        """`patience` is the deadline, in seconds, of requests that are not meant to run out of time.

        The share `cancels` of them is left by its client. With `may_resume`, those whose coordinator goes away are
        asked for again, behind what was received.
        """
        self._stub = stub
        self._cases = cases
        self._expected = expected
        self._seed = seed
        self._patience = patience
        self._cancels = cancels
        self._may_resume = may_resume
        self.resumed: Counter[str] = Counter()
        """Resumed requests, by the status with which the coordinator ended them."""
        self.ahead_count = self.drafted_count = self.forced_count = 0
        """Rounds of finished outputs whose proposal was prepared while the round before was verified."""
        self._is_ending = False
        self.difference = Difference()
        self.statuses: Counter[str] = Counter()
        """Requests by the status that they ended with."""
        self.violations: list[str] = []
        """The first violations, as text."""
        self.violation_count = 0
        self.longest_seconds = 0.0
        """Of a request that finished."""
        self._healed_at: float | None = None
        self.recovered_after: dict[int, float] = {}
        """Seconds from the end of all faults to the next message, by stream."""

    @property
    def request_count(self) -> int:
        return self.statuses.total()

    async def run(self, count: int, requests_each: int | None = None) -> None:
        """Runs until each client has sent its requests or `end` is called, and all requests have ended."""
        async with asyncio.TaskGroup() as group:
            for index in range(count):
                group.create_task(self._follow(index, requests_each))

    async def wait_until_recovered(self, count: int, within: float) -> None:
        """From now on nothing is broken: waits until so many streams have got something, or the time is over."""
        self._healed_at = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while len(self.recovered_after) < count:
                    await asyncio.sleep(0.05)
        for index in set(range(count)) - self.recovered_after.keys():
            self._note(f"stream {index} received nothing within {within:g} s after the end of all faults")

    def end(self) -> None:
        """Ends the clients after their current requests."""
        self._is_ending = True

    async def _follow(self, index: int, requests: int | None) -> None:
        random, hear = Random(f"{self._seed} stream {index}"), partial(self._hear, index)
        on_resume = self._count_resumed if self._may_resume else None
        for _ in itertools.count() if requests is None else range(requests):
            if self._is_ending:
                return
            case = random.choice(self._cases)
            variation = vary(random, case, self._patience, self._cancels)
            told = await ask(self._stub, case, variation, hear, on_resume)
            self._judge(case, told)
            if told.is_violation:
                await asyncio.sleep(VIOLATION_SECONDS)

    def _count_resumed(self, status: str) -> None:
        self.resumed[status.partition(":")[0]] += 1

    def _hear(self, index: int, now: float) -> None:
        if self._healed_at is not None:
            self.recovered_after.setdefault(index, now - self._healed_at)

    def _judge(self, case: Case, told: Told) -> None:
        difference = compare_all(self._expected, told.outputs)
        self.difference += difference
        self.statuses[told.status.partition(":")[0]] += 1
        self.ahead_count += told.ahead_count
        self.drafted_count += told.drafted_count
        self.forced_count += told.forced_count
        if told.status == "OK":
            self.longest_seconds = max(self.longest_seconds, told.seconds)
        if told.is_violation:
            self._note(f"{case.name} failed after {told.seconds:.1f} s: {told.status}")
        if not difference.is_none:
            self._note(f"{case.name} ({told.status}) differs: {difference}")

    def _note(self, text: str) -> None:
        self.violation_count += 1
        if len(self.violations) < MOST_NOTES:
            self.violations.append(text)
