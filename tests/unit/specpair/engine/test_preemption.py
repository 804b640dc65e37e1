"""Many sequences in too small a cache, with passes that fail: what comes out is what ample memory would give.

The model is a stand-in that looks at nothing but what the cache gives back: its keys are the tokens themselves, and
what it likes best next is a checksum of all of them. A key that is missing, stale or another's changes what comes out.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.caches.cache import KeyValueCache, LayerShape, blocks_for
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.paged_cache import PagedCache
from specpair.engine.device_thread import DeviceThread
from specpair.engine.engine import Engine
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError, ForwardFailedError
from specpair.models.batch import Batch, PassOutput
from specpair.sequences.sequence import Sequence

VOCABULARY = 97
BLOCK_SIZE = 2
CPU = torch.device("cpu")


class CacheWithTails(ContiguousCache):
    """As for the compiled runner."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.makes_tails = True


CACHES = {"paged": PagedCache, "contiguous": ContiguousCache, "tails": CacheWithTails}
TIMEOUT = 60.0


def next_token(tokens: list[int]) -> int:
    """The one that follows these."""
    checksum = 7
    for token in tokens:
        checksum = (checksum * 31 + token + 1) % 65521
    return checksum % VOCABULARY


def continuation(tokens: list[int], count: int) -> list[int]:
    history = list(tokens)
    for _ in range(count):
        history.append(next_token(history))
    return history[len(tokens) :]


class ChecksumRunner:
    """Runs the stand-in. The passes whose numbers are in `failing` fail, from the first one on."""

    device = CPU

    def __init__(self, cache: KeyValueCache, failing: frozenset[int] = frozenset()):
        self.cache = cache
        self._failing = failing
        self.passes = 0

    def forward(self, batch: Batch) -> PassOutput:
        self.passes += 1
        access = self.cache.access(batch.segments)
        keys = torch.tensor(batch.token_ids, dtype=torch.float32)[None, :, None]
        if self.passes in self._failing:
            access.write(0, keys * 0 - 1, keys)
            raise RuntimeError("no luck")
        access.write(0, keys, keys)
        rows: list[int] = []
        first = 0
        for index, segment in enumerate(batch.segments):
            held = access.read(0, index)[0][0, :, 0].int().tolist()
            assert len(held) == segment.end
            own = [row - first for row in batch.rows if first <= row < first + segment.token_count]
            rows += [next_token(held[: segment.start + row + 1]) for row in own]
            first += segment.token_count
        return PassOutput(torch.nn.functional.one_hot(torch.tensor(rows, dtype=torch.long), VOCABULARY).float())


@dataclass(eq=False, kw_only=True)
class StepWork(Work):
    choices: list[int] = field(default_factory=list)


def advance(works: list[Work], logits: Tensor) -> None:
    for work, rows in zip(works, logits.split([work.row_count for work in works]), strict=True):
        assert isinstance(work, StepWork)
        work.choices, work.done = rows.argmax(-1).tolist(), True


@dataclass(frozen=True)
class Load:
    """What one sequence wants."""

    prompt: list[int]
    proposed: list[int]
    """How many tokens are proposed in each step; every other proposal is right."""
    pause: int
    """Turns of the loop between steps."""

    @property
    def most_tokens(self) -> int:
        return len(self.prompt) + sum(self.proposed) + len(self.proposed)


loads = st.lists(
    st.builds(
        Load,
        st.lists(st.integers(0, 3), min_size=1, max_size=14),
        st.lists(st.integers(0, 4), min_size=1, max_size=5),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=7,
)


async def serve(engine: Engine, load: Load) -> list[int]:
    """Speculates as a coordinator does, and repeats what failed. What came out."""
    sequence = Sequence(list(load.prompt))
    for number, count in enumerate(load.proposed):
        committed = len(sequence.tokens)
        right = continuation(sequence.tokens, count)
        sequence.replace_from(committed, right if number % 2 else [(token + 1) % VOCABULARY for token in right])
        choices = await run(engine, sequence, count + 1)
        accepted = 0
        while accepted < count and choices[accepted] == sequence.tokens[committed + accepted]:
            accepted += 1
        sequence.replace_from(committed + accepted, [choices[accepted]])
        for _ in range(load.pause):
            await asyncio.sleep(0)
    engine.close(sequence)
    return sequence.tokens[len(load.prompt) :]


async def run(engine: Engine, sequence: Sequence, row_count: int) -> list[int]:
    while True:
        work = StepWork(sequence=sequence, row_count=row_count)
        try:
            await engine.run(work)
            return work.choices
        except ForwardFailedError:
            pass


async def serve_all(runner: Any, given_loads: list[Load], budget: int) -> list[list[int]]:
    engine = Engine(DeviceThread(), runner, advance, token_budget=budget, short=6)
    engine.start()
    try:
        async with asyncio.timeout(TIMEOUT):
            outputs = await asyncio.gather(*(serve(engine, load) for load in given_loads))
            await engine.check_integrity()
        assert engine.cache.free_block_count == engine.cache.block_count
        return outputs
    finally:
        await engine.stop()


def make_cache(kind: str, block_count: int) -> KeyValueCache:
    return CACHES[kind]({0: LayerShape(1, 1, 1)}, block_count, BLOCK_SIZE, torch.float32, CPU)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CACHES)
@given(
    given_loads=loads,
    spare=st.integers(0, 6),
    budget=st.integers(1, 24),
    failing=st.frozensets(st.integers(1, 40), max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_a_tight_cache_costs_time_alone(
    kind: str, given_loads: list[Load], spare: int, budget: int, failing: frozenset[int]
) -> None:
    """It holds the longest sequence and little more."""
    needed = blocks_for(max(load.most_tokens for load in given_loads), BLOCK_SIZE)
    runner = ChecksumRunner(make_cache(kind, needed + spare), failing)
    outputs = asyncio.run(serve_all(runner, given_loads, budget))
    for load, output in zip(given_loads, outputs, strict=True):
        assert output == continuation(load.prompt, len(output))
        assert len(output) >= len(load.proposed)


async def test_a_work_waits_for_one_that_has_blocks_and_no_tokens() -> None:
    """As after a failed pass: a slab is as large as before. Waiting helps, so the work is not refused."""
    cache = make_cache("contiguous", 4)
    runner: Any = ChecksumRunner(cache)
    turns = Turns(runner, advance, EngineStatistics(), lambda call: None, token_budget=16, short=4)
    suspect, other = (StepWork(sequence=Sequence([1] * count), row_count=1) for count in (6, 4))
    holding = suspect.sequence.holding = cache.open([])
    cache.append(holding, 6)
    cache.truncate_to(holding, 0)
    suspect.sequence.is_suspect = turns._ran_suspect = True
    for work in (suspect, other):
        work.future = asyncio.get_running_loop().create_future()
    turns.add([suspect, other])
    for _ in range(4):
        turns.turn()
    for work in (suspect, other):
        assert work.error is None and work.choices == continuation(work.sequence.tokens, 1)


@pytest.mark.parametrize("kind", CACHES)
def test_the_oldest_gets_on_whatever_the_others_want(kind: str) -> None:
    """A long prompt that fills the cache, beside short sequences without end: it is answered while they go on."""

    async def main() -> None:
        runner: Any = ChecksumRunner(make_cache(kind, 20))
        engine = Engine(DeviceThread(), runner, advance, token_budget=8, short=6)
        engine.start()
        ended = asyncio.Event()

        async def never_ending(first: int) -> int:
            sequence, steps = Sequence([first] * 6), 0
            while not ended.is_set():
                token = (await run(engine, sequence, 1))[0]
                sequence.replace_from(len(sequence.tokens) if len(sequence.tokens) < 12 else 6, [token])
                steps += 1
            return steps

        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
            others = [group.create_task(never_ending(first)) for first in range(5)]
            await asyncio.sleep(0.01)
            for length in (39, 40):
                prompt = list(range(length))
                assert await run(engine, Sequence(prompt), 1) == [next_token(prompt)]
            ended.set()
        assert all(other.result() > 0 for other in others)
        assert engine.statistics.preemptions > 0
        await engine.stop()

    asyncio.run(main())


@pytest.mark.parametrize("kind", CACHES)
def test_a_turn_without_room_is_no_reason_to_refuse(kind: str) -> None:
    """The first pass holds the first two, and fails. The third has its turns without them, while the first, which runs
    alone now, holds the cache."""
    given_loads = [Load(list(range(20)), [0], 0), Load([1], [0], 0), Load(list(range(20, 40)), [0], 0)]
    runner = ChecksumRunner(make_cache(kind, 11), frozenset({1}))
    outputs = asyncio.run(serve_all(runner, given_loads, budget=9))
    assert outputs == [continuation(load.prompt, 1) for load in given_loads]


@pytest.mark.parametrize("kind", CACHES)
def test_what_a_cancelled_work_holds_is_there_for_others_at_once(kind: str) -> None:
    """It fills the cache, and its owner has not said yet that the sequence is closed."""

    async def main() -> None:
        runner: Any = ChecksumRunner(make_cache(kind, 4))
        engine = Engine(DeviceThread(), runner, advance, token_budget=2, short=1)
        engine.start()
        left = Sequence([1] * 8)
        leaving = asyncio.create_task(run(engine, left, 1))
        forward, gone = runner.forward, threading.Event()
        leaving.add_done_callback(lambda _: gone.set())
        await asyncio.sleep(0)  # it comes first

        def forward_and_leave(batch: Batch) -> Tensor:
            logits = forward(batch)
            if runner.passes == 3:
                engine._loop.call_soon_threadsafe(leaving.cancel)
                assert gone.wait(TIMEOUT)
            return logits

        runner.forward = forward_and_leave
        async with asyncio.timeout(TIMEOUT):
            assert await run(engine, Sequence([2] * 8), 1) == [next_token([2] * 8)]
        assert leaving.cancelled()
        engine.close(left)
        await engine.check_integrity()
        await engine.stop()

    asyncio.run(main())


@pytest.mark.parametrize("kind", CACHES)
def test_what_cannot_ever_fit_is_refused(kind: str) -> None:
    async def main() -> None:
        engine = Engine(DeviceThread(), ChecksumRunner(make_cache(kind, 4)), advance, token_budget=64, short=6)  # type: ignore[arg-type]
        engine.start()
        with pytest.raises(CapacityExhaustedError):
            await run(engine, Sequence([1] * 9), 1)
        assert await run(engine, Sequence([1] * 8), 1) == [next_token([1] * 8)]
        await engine.stop()

    asyncio.run(main())
