"""Admission on an event loop: who waits is woken, who leaves is forgotten, a refusal says when to come again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.registry import CollectorRegistry

from coordinator.admission.admission import UNKNOWN_RETRY, Admission
from coordinator.admission.places import QueueLimits
from coordinator.deadline import Deadline
from coordinator.metrics.queue_metrics import QueueMetrics
from specpair.errors import CapacityExhaustedError, ShuttingDownError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Door:
    """An admission with its counters."""

    def __init__(self, count: int = 2, max_requests: int = 8, max_wait: float = 30.0, **limits: int):
        self.clock, self.registry = Clock(), CollectorRegistry()
        queue = QueueLimits(max_requests=max_requests, max_bytes=1000, **limits)
        self.admission = Admission(lambda: count, queue, max_wait, QueueMetrics(self.registry), self.clock)

    def refusals(self, reason: str) -> float | None:
        return self.registry.get_sample_value("specpair_request_refusals_total", {"reason": reason})

    @property
    def waiting(self) -> float | None:
        return self.registry.get_sample_value("specpair_num_requests_waiting")

    @asynccontextmanager
    async def full(self, count: int = 2) -> AsyncIterator[Callable[[], None]]:
        """All places are taken until the function is called that it gives."""
        release = asyncio.Event()

        async def hold() -> None:
            async with self.admission.enter(count):
                await release.wait()

        task = asyncio.create_task(hold())
        await asyncio.sleep(0)
        try:
            yield release.set
        finally:
            release.set()
            await task


async def enter(door: Door, output_count: int = 1, client: str = "") -> None:
    async with door.admission.enter(output_count, client=client):
        pass


async def waiting(door: Door, *counts: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(enter(door, count)) for count in counts]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_who_waits_gets_places_that_come_free() -> None:
    door = Door()
    async with door.full() as release:
        tasks = await waiting(door, 1, 2, 1)
        assert door.waiting == 3
        assert not any(task.done() for task in tasks)
        release()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert door.waiting == 0
    assert door.registry.get_sample_value("specpair_request_queue_time_seconds_count") == 4


async def test_a_full_queue_refuses_at_once() -> None:
    door = Door(max_requests=1)
    async with door.full() as release:
        (task,) = await waiting(door, 1)
        with pytest.raises(CapacityExhaustedError, match="1 of 2 places; 2 are taken, and 1 requests wait"):
            await enter(door)
        assert door.refusals("queue_full") == 1
        release()
        await task


async def test_without_a_queue_nothing_waits() -> None:
    door = Door(max_requests=0)
    async with door.full():
        with pytest.raises(CapacityExhaustedError):
            await enter(door)
    await enter(door)


async def test_waiting_has_an_end() -> None:
    door = Door(max_wait=0.01)
    async with door.full():
        with pytest.raises(CapacityExhaustedError, match="not enough became free in time"):
            await enter(door)
        assert (door.waiting, door.refusals("queue_timeout")) == (0, 1)


async def test_a_client_with_less_time_waits_no_longer_than_that() -> None:
    """It hears why, and when to come again, before its own deadline ends the call."""
    door = Door()
    async with door.full(), asyncio.timeout(5.0):
        with pytest.raises(CapacityExhaustedError, match="not enough became free in time") as refused:
            async with door.admission.enter(1, deadline=Deadline.after(0.01)):
                raise AssertionError("no place is free")
        assert refused.value.retry_after == UNKNOWN_RETRY
        assert (door.waiting, door.refusals("queue_timeout")) == (0, 1)


async def test_who_is_cancelled_leaves_the_queue_at_once() -> None:
    door = Door()
    async with door.full() as release:
        large, small = await waiting(door, 2, 1)
        large.cancel()
        await asyncio.gather(large, return_exceptions=True)
        assert door.waiting == 1
        release()
        await asyncio.wait_for(small, 5)


async def test_who_is_cancelled_with_its_places_on_the_way_gives_them_back() -> None:
    door = Door()
    async with door.full() as release:
        first, second = await waiting(door, 2, 2)
        release()
        while door.waiting == 2:  # until the first has its places, of which it does not know yet
            await asyncio.sleep(0)
        assert not first.done()
        first.cancel()
        await asyncio.wait_for(second, 5)
        with pytest.raises(asyncio.CancelledError):
            await first
    await asyncio.wait_for(enter(door, 2), 5)


async def test_the_last_of_a_client_with_many_makes_room() -> None:
    door = Door(max_requests=2)
    async with door.full() as release:
        tasks = [asyncio.create_task(enter(door, client="ann")) for _ in range(2)]
        await asyncio.sleep(0)
        other = asyncio.create_task(enter(door, client="bob"))
        with pytest.raises(CapacityExhaustedError, match="a client with fewer waiting requests goes first"):
            await tasks[1]
        assert door.refusals("pushed_out") == 1
        release()
        await asyncio.wait_for(asyncio.gather(tasks[0], other), 5)


async def test_closing_refuses_who_waits_and_who_comes_and_leaves_the_rest_alone() -> None:
    door = Door()
    async with door.full():
        tasks = await waiting(door, 1, 1)
        door.admission.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [ShuttingDownError] * 2
        with pytest.raises(ShuttingDownError):
            await enter(door)
    assert door.refusals("shutting_down") == 3


async def test_closing_leaves_places_that_were_just_given() -> None:
    door = Door()
    async with door.full() as release:
        first, second = await waiting(door, 2, 2)
        release()
        while door.waiting == 2:
            await asyncio.sleep(0)
        door.admission.close()
        await asyncio.wait_for(first, 5)
        with pytest.raises(ShuttingDownError):
            await second


async def test_a_refusal_says_when_places_are_likely_to_be_free() -> None:
    door = Door(count=2, max_requests=2)
    assert door.admission.retry_after(1) == UNKNOWN_RETRY
    async with door.admission.enter(1):
        door.clock.now += 6.0
    async with door.full() as release:
        tasks = await waiting(door, 1, 1)
        with pytest.raises(CapacityExhaustedError) as caught:
            await enter(door)
        # Two run and two wait, each for 6 s on 2 places: the fifth of them is served behind three of them.
        assert caught.value.retry_after == 9.0
        release()
        await asyncio.gather(*tasks)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 6), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_nobody_is_forgotten(requests: list[tuple[int, str, int, int, bool]]) -> None:
    asyncio.run(serve_all(requests))


async def serve_all(requests: list[tuple[int, str, int, int, bool]]) -> None:
    """Each comes after some turns of the loop and stays for some; some are cancelled on the way."""
    door, running, most = Door(count=4, max_requests=100), 0, 0

    async def request(count: int, client: str, delay: int, length: int) -> None:
        nonlocal running, most
        for _ in range(delay):
            await asyncio.sleep(0)
        async with door.admission.enter(count, client=client):
            running += count
            most = max(most, running)
            try:
                for _ in range(length):
                    await asyncio.sleep(0)
            finally:
                running -= count

    tasks = [asyncio.create_task(request(*each[:4])) for each in requests]
    for turn in range(12):
        await asyncio.sleep(0)
        for task, (*_, is_cancelled) in zip(tasks, requests, strict=True):
            if is_cancelled and turn == 5:
                task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
    assert (running, door.waiting) == (0, 0)
    assert most <= 4
    await asyncio.wait_for(enter(door, 4), 1)
