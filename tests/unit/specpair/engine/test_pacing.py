"""Paced passes take at least their time: the rest is slept, and work counts towards it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache, LayerShape
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.engine.device_thread import DeviceThread
from specpair.engine.engine import Engine
from specpair.engine.pacing import Pacing
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.engine.work import Work
from specpair.engine_config import Pace, pace_of
from specpair.models.batch import Batch, PassOutput
from specpair.sequences.sequence import Sequence

PACE_SECONDS = 0.02
ROW_SECONDS = 0.005
STEPS = 3
VOCABULARY = 8


class Time:
    """A clock that only work and sleep move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("work", "tokens", "slept"),
    [(0.0, 1, [0.025]), (0.008, 1, [0.017]), (0.008, 4, [0.032]), (0.025, 1, []), (0.5, 4, [])],
)
def test_what_a_pass_has_not_worked_is_slept(work: float, tokens: int, slept: list[float]) -> None:
    clock = Time()
    pacing = Pacing(Pace(PACE_SECONDS, ROW_SECONDS), lambda: clock.now, clock.sleep)
    for _ in range(2):  # the second pass begins anew
        clock.slept.clear()
        pacing.begin(tokens)
        clock.now += work
        pacing.end()
        assert sum(clock.slept) == pytest.approx(sum(slept))


def test_a_pass_sleeps_first_if_it_knows_how_long_it_works() -> None:
    clock = Time()
    pacing = Pacing(Pace(PACE_SECONDS, ROW_SECONDS), lambda: clock.now, clock.sleep)
    slept: list[list[float]] = []
    for work in (0.004, 0.002, 0.018, 0.001):
        clock.slept.clear()
        begun = clock.now
        pacing.begin(1)
        assert clock.now - begun == pytest.approx(sum(clock.slept))
        clock.now += work
        pacing.end()
        slept.append([*clock.slept])
    # The first pass knows nothing; the third works longer than all before; the fourth leaves as much time as that took.
    assert slept == [
        pytest.approx([0.021]),
        pytest.approx([0.019, 0.004]),
        pytest.approx([0.019]),
        pytest.approx([0.024]),
    ]
    assert clock.now == pytest.approx(3 * 0.025 + 0.037)


class FlatRunner:
    """All tokens are equally likely; a pass takes no time."""

    device = torch.device("cpu")
    description = "flat"
    no_trees = ""

    def __init__(self) -> None:
        self.cache: KeyValueCache = ContiguousCache({0: LayerShape(1, 1, 1)}, 64, 4, torch.float32, self.device)

    def forward(self, batch: Batch) -> PassOutput:
        return PassOutput(torch.zeros(len(batch.rows), VOCABULARY))


def draw_zeros(works: list[Work], logits: Tensor) -> None:
    """As a draft: one pass for each of STEPS tokens."""
    for work in works:
        work.sequence.tokens.append(0)
        work.done = len(work.sequence.tokens) == 1 + STEPS


async def seconds_of(pace: Pace | None, sequence_count: int) -> tuple[float, list[float], int]:
    """Seconds of works that run together; the compute time of each; passes."""
    engine = Engine(DeviceThread(), FlatRunner(), draw_zeros, token_budget=64, short=6, pace=pace)
    engine.start()
    try:
        works = [Work(sequence=Sequence([1]), row_count=1) for _ in range(sequence_count)]
        started = time.perf_counter()
        await asyncio.gather(*(engine.run(work) for work in works))
        seconds = time.perf_counter() - started
        return seconds, [work.compute_time for work in works], sum(engine.statistics.forward_time.counts)
    finally:
        await engine.stop()


@pytest.mark.parametrize("sequence_count", [1, 4])
def test_each_pass_of_an_engine_takes_its_time_whatever_its_batch(sequence_count: int) -> None:
    """A sequence's time shows it too: what waits inside of a pass is not its queue."""
    seconds, computed, passes = asyncio.run(seconds_of(Pace(PACE_SECONDS, ROW_SECONDS), sequence_count))
    assert passes == STEPS
    assert min(seconds, *computed) >= STEPS * (PACE_SECONDS + ROW_SECONDS * sequence_count)


def test_a_pace_is_given_in_milliseconds() -> None:
    assert pace_of("20") == Pace(0.02, 0.0)
    assert pace_of("1.5,0.25") == Pace(0.0015, 0.00025)
    assert Pace(0.02, 0.001).of_pass(4) == pytest.approx(0.024)


@pytest.mark.parametrize("text", ["", "fast", "1,2,3", "-1", "1,-1", "nan", "inf", "20,", "99999"])
def test_what_is_no_pace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MS_PER_ROW"):
        pace_of(text)


@dataclass(eq=False)
class Answered(Work):
    """A work whose next call may come while its pass sleeps."""

    follows: bool = False

    @property
    def is_followed(self) -> bool:
        return self.follows


def tell_at_once(call: Callable[[], object]) -> None:
    call()


@pytest.mark.parametrize("comes", [True, False])
async def test_a_call_that_comes_while_a_pass_sleeps_is_there_when_it_is_over(comes: bool) -> None:
    """On the device that is imitated the pass is not over before: the next one waits for the call."""
    work = Answered(sequence=Sequence([1, 0, 0]), row_count=1)
    work.future = asyncio.get_running_loop().create_future()
    clock = Time()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        work.follows = comes

    pacing = Pacing(Pace(PACE_SECONDS, 0.0), lambda: clock.now, sleep)
    turns = Turns(FlatRunner(), draw_zeros, EngineStatistics(), tell_at_once, token_budget=64, short=6, pacing=pacing)
    turns.add([work])
    turns.turn()
    assert work.done and clock.slept
    turns.add([Answered(sequence=Sequence([1]), row_count=1)])
    assert (turns.patience() != 0.0) is comes
