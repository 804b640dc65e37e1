"""The device thread goes on from one work to the next of the same sequence, without the event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from torch import Tensor

from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.engine.work import Work
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_pacing import FlatRunner


@dataclass(eq=False)
class Following(Work):
    """A work that another one follows, as often as `left` says."""

    left: int = 1

    @property
    def is_followed(self) -> bool:
        return self.left > 0

    def go_on(self) -> Work | None:
        if self.left < 0:
            raise ValueError("as the test asked")
        return Following(sequence=self.sequence, row_count=1, left=self.left - 1) if self.left else None


def draw(works: list[Work], logits: Tensor) -> None:
    for work in works:
        work.sequence.tokens.append(0)
        work.done = True


def turns_of(*works: Work) -> Turns:
    turns = Turns(FlatRunner(), draw, EngineStatistics(), tell_never, token_budget=8, short=4)
    for work in works:
        work.future = asyncio.get_running_loop().create_future()
    turns.add(list(works))
    return turns


def tell_never(call: Callable[[], object]) -> None:
    """The event loop is busy all the time."""


async def test_the_next_turn_has_the_next_work() -> None:
    first = Following(sequence=Sequence([1]), row_count=1, left=2)
    turns = turns_of(first)
    for count in (2, 3, 4):
        turns.turn()
        assert len(first.sequence.tokens) == count
    assert not turns.works and turns.patience() is None


async def test_what_follows_joins_what_is_under_way_and_waits_for_nobody() -> None:
    first, other = Following(sequence=Sequence([1]), row_count=1), Work(sequence=Sequence([1] * 20), row_count=1)
    turns = turns_of(first, other)
    turns.turn()
    assert [work.sequence for work in turns.works] == [other.sequence, first.sequence]
    assert turns.patience() == 0.0
    turns.turn()
    assert len(first.sequence.tokens) == 3


async def test_it_ends_with_its_sequence() -> None:
    """The sequence was closed before the event loop knew of the work, so nobody cancels it."""
    first = Following(sequence=Sequence([1]), row_count=1)
    turns = turns_of(first)
    turns.turn()
    assert turns.works
    turns.release(first.sequence)
    turns.turn()
    assert first.sequence.holding is None and len(first.sequence.tokens) == 2
    assert turns.runner.cache.free_block_count == turns.runner.cache.block_count


@pytest.mark.parametrize("why", ["cancelled", "raises"])
async def test_nothing_follows(why: str, caplog: pytest.LogCaptureFixture) -> None:
    first = Following(sequence=Sequence([1]), row_count=1, left=-1 if why == "raises" else 1)
    turns = turns_of(first)
    advance = turns.advance

    def cancelling(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)
        if why == "cancelled":
            first.future.cancel()

    turns.advance = cancelling
    turns.turn()
    assert not turns.works and first.error is None
    assert ("could not go on by itself" in caplog.text) is (why == "raises")
