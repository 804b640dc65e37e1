"""Prepared proposals: which of them are kept, for which round, and what is counted."""

import asyncio
import time
from typing import Any

import pytest

from coordinator.peers import ahead_blocks
from coordinator.peers.ahead_blocks import AheadBlocks, BlockFate, BlockInbox, BlockKey, PreparedBlock
from specpair.v1.draft_service_pb2 import AheadBlock
from specpair.v1.proposal_pb2 import Proposal

HISTORY = [1, 2, 3, 4]


def block(**changes: Any) -> AheadBlock:
    """For step 5 after 4 tokens, of which one was accepted and then 9 came."""
    values: dict[str, Any] = {"sequence_id": "s", "step": 5, "base_length": 4, "accepted_count": 1, "next_token_id": 9}
    return AheadBlock(**{**values, **changes}, proposal=Proposal(token_ids=[7, 8]))


class Expecting:
    """Blocks of one sequence that are expected for step 5."""

    def __init__(self, most: int = 8) -> None:
        self.inbox = BlockInbox()
        self.offered: list[PreparedBlock] = []
        self.blocks = AheadBlocks(self.offered.append)
        self.blocks.expect(self.inbox, "s", 5, len(HISTORY), most)

    def counts(self) -> dict[str, int]:
        return {fate.value: count for fate, count in self.inbox.counts.items() if count}


def test_a_block_is_found_by_the_round_that_it_is_for_once() -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    key = expecting.blocks.key(5, [*HISTORY, 6, 9])
    assert key is not None and key == BlockKey(5, 4, 1, 9)
    found = expecting.blocks.take(key)
    assert found is not None and list(found.proposal.token_ids) == [7, 8] and found.length == 6
    assert expecting.blocks.take(key) is None
    assert expecting.counts() == {"used": 1} and expecting.offered == [found]


@pytest.mark.parametrize(
    ("step", "history"),
    [(5, [*HISTORY, 9]), (5, [*HISTORY, 6, 8]), (5, [*HISTORY, 6, 5, 9]), (6, [*HISTORY, 6, 9]), (5, HISTORY)],
)
def test_any_other_round_does_not_find_it(step: int, history: list[int]) -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    key = expecting.blocks.key(step, history)
    assert key is None or expecting.blocks.take(key) is None


@pytest.mark.parametrize("change", [{"step": 4}, {"step": 6}, {"base_length": 3}, {"sequence_id": "other"}])
def test_what_was_not_expected_is_stale(change: dict[str, Any]) -> None:
    expecting = Expecting()
    expecting.inbox.receive(block(**change))
    assert expecting.counts() == {"stale": 1} and not expecting.offered


def test_a_block_that_comes_twice_is_kept_and_offered_once() -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    expecting.inbox.receive(block())
    assert expecting.counts() == {"stale": 1} and len(expecting.offered) == 1


def test_no_more_blocks_are_kept_than_were_asked_for() -> None:
    expecting = Expecting(most=3)
    for token in range(9):
        expecting.inbox.receive(block(next_token_id=token))
    assert expecting.counts() == {"stale": 6} and len(expecting.offered) == 3


def test_no_more_bytes_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_blocks, "MOST_BYTES", 2 * block().proposal.ByteSize())
    expecting = Expecting()
    for token in range(4):
        expecting.inbox.receive(block(next_token_id=token))
    assert expecting.counts() == {"stale": 2}


def test_two_steps_are_kept_and_older_blocks_are_unused() -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    expecting.blocks.expect(expecting.inbox, "s", 6, 6, 8)
    expecting.inbox.receive(block(step=6, base_length=6))
    assert [entry.key.step for step in (5, 6) for entry in expecting.blocks.of_step(step)] == [5, 6]
    expecting.blocks.expect(expecting.inbox, "s", 7, 8, 8)
    assert not list(expecting.blocks.of_step(5)) and expecting.counts() == {"unused": 1}
    expecting.inbox.receive(block())
    assert expecting.counts() == {"unused": 1, "stale": 1}


def test_no_block_took_longer_than_the_time_since_it_was_asked_for() -> None:
    """The report of its round could not have more, and the time that was hidden would grow without end."""
    start = time.perf_counter()
    expecting = Expecting()
    expecting.inbox.receive(block(compute_time_us=2**64 - 1))
    expecting.inbox.receive(block(next_token_id=8, compute_time_us=0))
    most = time.perf_counter() - start
    assert 0 < expecting.offered[0].compute <= most and expecting.offered[1].compute == 0


def test_a_sequence_that_is_opened_again_begins_anew() -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    expecting.blocks.expect(expecting.inbox, "s-2", 5, 4, 8)
    assert not list(expecting.blocks.of_step(5))
    expecting.inbox.receive(block(next_token_id=8))
    expecting.inbox.receive(block(sequence_id="s-2"))
    assert expecting.counts() == {"unused": 1, "stale": 1} and len(list(expecting.blocks.of_step(5))) == 1


def test_nothing_comes_any_more_once_it_is_cleared() -> None:
    expecting = Expecting()
    expecting.blocks.clear()
    expecting.inbox.receive(block())
    assert expecting.counts() == {"stale": 1} and expecting.blocks.key(5, [*HISTORY, 9]) is None


async def test_a_round_can_wait_for_its_block() -> None:
    expecting = Expecting()
    waiting = asyncio.create_task(expecting.blocks.wait(BlockKey(5, 4, 1, 9)))
    await asyncio.sleep(0)
    expecting.inbox.receive(block(next_token_id=8))
    await asyncio.sleep(0)
    assert not waiting.done()
    expecting.inbox.receive(block())
    assert (await waiting).key.next_token_id == 9
    assert expecting.counts() == {"used": 1}
    assert [entry.key.next_token_id for entry in expecting.offered] == [8], "what is waited for is not offered as well"


async def test_a_wait_ends_at_once_if_the_block_came_before_it() -> None:
    expecting = Expecting()
    expecting.inbox.receive(block())
    assert (await asyncio.wait_for(expecting.blocks.wait(BlockKey(5, 4, 1, 9)), 1.0)).length == 6
    assert expecting.counts() == {"used": 1}


async def test_a_wait_that_was_given_up_does_not_end_the_next() -> None:
    expecting = Expecting()
    first = asyncio.create_task(expecting.blocks.wait(BlockKey(5, 4, 1, 9)))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(expecting.blocks.wait(BlockKey(5, 4, 0, 3)))
    await asyncio.sleep(0)
    expecting.inbox.receive(block(accepted_count=0, next_token_id=3))
    assert (await asyncio.wait_for(second, 1.0)).key.next_token_id == 3
    assert dict.fromkeys(BlockFate, 0).keys() == expecting.inbox.counts.keys()
