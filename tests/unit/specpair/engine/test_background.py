"""Works for which nobody waits: they hold nobody up, lose their cache first, and leave nothing."""

import asyncio
import threading
from ctypes import c_int64
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from specpair.engine import turns
from specpair.engine.device_thread import DeviceThread
from specpair.engine.engine import Engine
from specpair.engine.gathering import FIRST_COUNT, MOST_SPARE, Gathering
from specpair.engine.holdings import Holdings
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError
from specpair.models.batch import Batch, PassOutput
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_gathering import gathering_of
from tests.unit.specpair.engine.test_preemption import (
    BLOCK_SIZE,
    CACHES,
    ChecksumRunner,
    StepWork,
    advance,
    make_cache,
    next_token,
)

TIMEOUT = 30.0
PROMPT = [1, 2, 3, 0, 2, 1]


def test_rows_are_spare_as_long_as_they_lengthen_a_pass_by_a_tenth() -> None:
    assert gathering_of(0.02, 0.001).spare_rows(10) == 3
    assert gathering_of(0.001, 0.004).spare_rows(2) == 0
    flat = Gathering()
    for _ in range(FIRST_COUNT):
        assert flat.spare_rows(1) == 0
        flat.add_pass(1, 1, 0.02)
    assert flat.spare_rows(1) == MOST_SPARE


def test_rows_are_quick_as_long_as_they_do_not_double_the_time_of_one() -> None:
    assert gathering_of(0.02, 0.001).quick_rows() == 22
    assert gathering_of(0.0, 0.001).quick_rows() == 2
    assert Gathering().quick_rows() == MOST_SPARE, "costs are unknown"


def test_rows_that_cost_nothing_up_to_some_number_are_quick_up_to_there() -> None:
    paced = Gathering()
    for _ in range(30):
        for rows in (1, 8, 24, 64):
            paced.add_pass(rows, rows, max(0.001, 0.0001 * rows))
    assert paced.quick_rows() == 8, "24 take 2.4 ms"


class Recorder(ChecksumRunner):
    """Notes the sizes of its passes."""

    def forward(self, batch: Batch) -> PassOutput:
        self.sizes = [*getattr(self, "sizes", []), len(batch.segments)]
        return super().forward(batch)


async def started(runner: Any) -> Engine:
    engine = Engine(DeviceThread(), runner, advance, token_budget=32, short=6)
    engine.start()
    return engine


async def filled(engine: Engine, tokens: list[int]) -> Sequence:
    """A sequence whose tokens are all cached."""
    sequence = Sequence(list(tokens))
    await engine.run(StepWork(sequence=sequence, row_count=1))
    return sequence


def branch_of(sequence: Sequence, length: int, token: int) -> StepWork:
    branch = Sequence([*sequence.tokens[:length], token], valid_length=length, is_branch=True)
    return StepWork(sequence=branch, row_count=1, parent=sequence, room=2, is_background=True)


async def outcome(future: "asyncio.Future[None]") -> Any:
    await asyncio.wait([future], timeout=TIMEOUT)
    return future.exception()


async def check_empty(engine: Engine) -> None:
    await engine.check_integrity()
    assert engine.cache.free_block_count == engine.cache.block_count


@pytest.mark.parametrize("kind", CACHES)
async def test_branches_go_on_from_what_their_parent_has(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FORK_SECONDS", TIMEOUT)  # on a busy machine a copy may take longer than all may
    runner = Recorder(make_cache(kind, 64))
    engine = await started(runner)
    parent = await filled(engine, PROMPT)
    works = [branch_of(parent, length, 3) for length in (2, 4, 6)]
    for future in [engine.submit(work) for work in works]:
        assert await outcome(future) is None
    assert runner.sizes == [1, 3], "they share one pass"
    assert [work.choices for work in works] == [[next_token([*PROMPT[:length], 3])] for length in (2, 4, 6)]
    assert [work.largest_batch.token_count for work in works if work.largest_batch] == [3, 3, 3], "nothing is fed again"
    assert parent.tokens == PROMPT and parent.valid_length == len(PROMPT)
    engine.discard([work.sequence for work in works])
    engine.discard([parent])
    await check_empty(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
async def test_a_work_that_somebody_waits_for_is_not_held_up_by_others(kind: str) -> None:
    """As long as the cost of rows is unknown, a pass is its own."""
    runner = Recorder(make_cache(kind, 64))
    engine = await started(runner)
    parent = await filled(engine, PROMPT)
    works = [branch_of(parent, 2, token) for token in range(4)]
    futures = [engine.submit(work) for work in works]
    await engine.run(StepWork(sequence=Sequence([5]), row_count=1))
    for future in futures:
        assert await outcome(future) is None
    assert runner.sizes[:2] == [1, 1], "the prompt of the branches, and then the work that somebody waits for"
    assert sum(runner.sizes[2:]) == 4, "in one pass or, where the copies take long, in several"
    await engine.stop()


async def test_branches_that_cost_time_go_in_quick_passes_and_the_likeliest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Gathering, "quick_rows", lambda self: 2)
    engine = await started(runner := Recorder(make_cache("paged", 64)))
    parent = await filled(engine, PROMPT)
    works = [branch_of(parent, 4, token) for token in range(4)]
    for work, chance in zip(works, (0.1, 0.4, 0.2, 0.3), strict=True):
        work.chance = chance
    for future in [engine.submit(work) for work in works]:
        assert await outcome(future) is None
    assert runner.sizes == [1, 2, 2]
    assert sorted(works, key=lambda work: (work.finished_at, -work.chance)) == [works[1], works[3], works[2], works[0]]
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
async def test_branches_are_the_first_to_lose_their_cache(kind: str) -> None:
    blocks = 3 * len(PROMPT) // BLOCK_SIZE
    engine = await started(ChecksumRunner(make_cache(kind, blocks)))
    parent = await filled(engine, PROMPT)
    idle = branch_of(parent, 4, 1)
    assert await outcome(engine.submit(idle)) is None
    evicted = engine.statistics.preemptions
    other = Sequence([7] * (2 * len(PROMPT)))
    await engine.run(StepWork(sequence=other, row_count=1))
    assert idle.sequence.holding is None and parent.holding is not None
    assert engine.statistics.preemptions == evicted, "a branch is no open sequence"
    for sequence in (parent, other, idle.sequence):
        engine.close(sequence)
    await check_empty(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
async def test_a_branch_that_finds_no_room_ends_and_takes_nothing(kind: str) -> None:
    blocks = -(-len(PROMPT) // BLOCK_SIZE)
    engine = await started(ChecksumRunner(make_cache(kind, blocks)))
    parent = await filled(engine, PROMPT)
    error = await outcome(engine.submit(branch_of(parent, len(PROMPT), 1)))
    assert isinstance(error, CapacityExhaustedError)
    assert parent.holding is not None and parent.holding.length == len(PROMPT)
    await engine.check_integrity()
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("turns", range(4))
async def test_branches_that_are_cancelled_at_any_time_leave_nothing(kind: str, turns: int) -> None:
    engine = await started(ChecksumRunner(make_cache(kind, 64)))
    for _ in range(20):
        parent = await filled(engine, PROMPT)
        works = [branch_of(parent, length, 3) for length in (2, 4, 6)]
        futures = [engine.submit(work) for work in works]
        for _ in range(turns):
            await asyncio.sleep(0)
        for future in futures:
            future.cancel()
        engine.discard([work.sequence for work in works])
        engine.discard([parent])
        await check_empty(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
async def test_a_branch_in_a_failed_pass_fails_and_is_not_tried_again(kind: str) -> None:
    engine = await started(ChecksumRunner(make_cache(kind, 64), failing=frozenset({2})))
    parent = await filled(engine, PROMPT)
    futures = [engine.submit(branch_of(parent, 2, token)) for token in range(3)]
    assert all([await outcome(future) for future in futures])
    await engine.run(StepWork(sequence=parent, row_count=1))
    await engine.stop()


class Held(ChecksumRunner):
    """Its passes wait for `go`."""

    def __init__(self, cache: Any):
        super().__init__(cache)
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def forward(self, batch: Batch) -> PassOutput:
        self.begun.set()
        assert self.go.wait(TIMEOUT)
        return super().forward(batch)


async def test_a_work_stays_in_the_background_until_the_turn_is_over() -> None:
    """A turn that reads it as both would feed the work twice."""
    runner = Held(make_cache("contiguous", 64))
    engine = await started(runner)
    parent = await filled(engine, PROMPT)
    runner.begun.clear()
    runner.go.clear()
    first, second = branch_of(parent, 4, 1), branch_of(parent, 4, 2)
    future = engine.submit(first)
    await asyncio.to_thread(runner.begun.wait, TIMEOUT)
    later = engine.submit(second)
    for work in (first, second):
        engine.bring_forward(work)
        assert work.is_background and work.sequence.is_branch
    runner.go.set()
    assert await outcome(future) is None and await outcome(later) is None
    assert not second.is_background and not second.sequence.is_branch
    assert [work.choices for work in (first, second)] == [[next_token([*PROMPT[:4], token])] for token in (1, 2)]
    await engine.stop()


async def test_a_work_that_ends_for_lack_of_room_is_finished_in_the_background_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = await started(ChecksumRunner(make_cache("contiguous", -(-len(PROMPT) // BLOCK_SIZE))))
    parent = await filled(engine, PROMPT)
    end = Holdings.end

    def ended(work: Work) -> None:
        end(work)
        work.is_background = False

    monkeypatch.setattr(Holdings, "end", staticmethod(ended))
    future = engine.submit(branch_of(parent, 4, 1))
    await asyncio.wait([future], timeout=2.0)
    assert future.done() and isinstance(future.exception(), CapacityExhaustedError)
    await engine.stop()


@pytest.mark.parametrize("kind", CACHES)
async def test_a_call_that_somebody_waits_for_gets_the_place_of_branches_under_way(kind: str) -> None:
    """Also where no branch alone has a block that others could take."""
    cache = make_cache(kind, 20)
    runner: Any = ChecksumRunner(cache)

    def background_goes_on(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)
        for work in works:
            if work.is_background:
                work.done = False
                work.sequence.tokens.append(0)

    turns = Turns(runner, background_goes_on, EngineStatistics(), lambda call: None, token_budget=64, short=4)

    def added(work: StepWork) -> StepWork:
        work.future = asyncio.get_running_loop().create_future()
        turns.add([work])
        return work

    parent = added(StepWork(sequence=Sequence([1] * 10), row_count=1))
    turns.turn()
    branches = [added(branch_of(parent.sequence, length, 2)) for length in (10, 9)]
    turns.turn()
    assert all(branch.sequence.holding is not None and not branch.done for branch in branches)
    other = added(StepWork(sequence=Sequence([3] * 36), row_count=1))
    for _ in range(4):
        turns.turn()
    assert other.error is None and other.choices == [next_token([3] * 36)]
    assert all(isinstance(branch.error, CapacityExhaustedError) for branch in branches)
    cache.check_integrity()


@pytest.mark.parametrize(("pass_seconds", "count"), [(None, 1), (0.005, 1), (0.04, 4)])
async def test_forks_take_a_millisecond_of_a_turn_or_a_tenth_of_a_pass(
    pass_seconds: float | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which each fork takes a millisecond. Without costs it is unknown what a pass takes."""
    runner: Any = ChecksumRunner(make_cache("contiguous", 64))
    turns = Turns(runner, advance, EngineStatistics(), lambda call: None, token_budget=64, short=4)
    parent = StepWork(sequence=Sequence(list(PROMPT)), row_count=1)
    branches = [branch_of(parent.sequence, 4, token) for token in range(6)]
    for work in (parent, *branches):
        work.future = asyncio.get_running_loop().create_future()
    turns.add([parent])
    turns.turn()
    turns._gathering = Gathering()
    for rows in (1, 2, 1, 2, 1) if pass_seconds else ():
        turns._gathering.add_pass(rows, rows, pass_seconds or 0.0)
    now, fork = [0.0], Holdings.fork

    def slow_fork(holdings: Holdings, source: Sequence, forked: Sequence, room: int = 0) -> None:
        now[0] += 0.00101
        fork(holdings, source, forked, room)

    monkeypatch.setattr(Holdings, "fork", slow_fork)
    monkeypatch.setattr("specpair.engine.turns.time", SimpleNamespace(perf_counter=lambda: now[0]))
    turns.add(list(branches))
    turns.turn()
    assert sum(branch.parent is None for branch in branches) == count


async def test_a_pass_of_several_steps_hears_of_new_works() -> None:
    """And of works that come forward, but not of what only gives back memory."""
    engine = await started(Recorder(make_cache("paged", 64)))
    flag = engine.stop_flag
    seen: list[bool] = []
    for begin in (
        lambda: None,
        lambda: engine.submit(StepWork(sequence=Sequence([5]), row_count=1)),
        lambda: engine.bring_forward(StepWork(sequence=Sequence([5]), row_count=1)),
        lambda: engine.ask(lambda: None),
        lambda: engine.discard([]),
    ):
        busy, free = threading.Event(), threading.Event()
        asking = asyncio.ensure_future(engine.call(lambda busy=busy, free=free: (busy.set(), free.wait(TIMEOUT))))
        await asyncio.to_thread(busy.wait, TIMEOUT)
        flag.clear()
        begin()
        await asyncio.sleep(0.01)
        seen.append(bool(c_int64.from_address(flag.address).value))
        free.set()
        await asking
    assert seen == [False, True, True, True, False]
    await engine.stop()
