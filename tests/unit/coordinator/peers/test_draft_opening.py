"""The opening of a sequence at a draft, and at the next one."""

import asyncio

import pytest

from coordinator.peers.draft_opening import DraftOpening
from coordinator.peers.drafts import DraftLink
from coordinator.peers.openings import Openings
from specpair.options import SamplingOptions, SequenceOptions
from tests.unit.coordinator.fake_peers import FakeDraft
from tests.unit.coordinator.pair_bench import PROMPT, Bench, bench, until

WITHIN = 0.05


def opening(name: str) -> DraftOpening:
    options = SequenceOptions(sampling=SamplingOptions())
    return DraftOpening(Openings[DraftLink](name, len(PROMPT), options), lambda: WITHIN)


def fake_at(link: DraftLink, b: Bench) -> FakeDraft:
    return next(draft for draft in b.drafts if draft.address == link.peer.address)


async def test_a_fork_that_fails_at_a_draft_that_was_left_changes_nothing() -> None:
    """By then the sequence is held elsewhere, and later nobody would close what is opened."""
    async with bench(draft_count=2) as b:
        assert b.pair.draft is not None
        slow, other = b.pair.draft.links.values()
        original, copy = opening("original"), opening("copy")
        original.enter(slow)
        original.start(slow, PROMPT, None)
        await original.finish()
        fake_at(slow, b).fork_delay = 10 * WITHIN
        copy.enter(slow)
        copy.start(slow, PROMPT, original)
        await asyncio.sleep(0.01)  # it is under way
        copy.enter(other)
        await copy.reopen(other, PROMPT)
        await asyncio.sleep(2 * WITHIN)
        assert copy.held_length == len(PROMPT)
        assert list(fake_at(slow, b).held) == ["original"]
        await asyncio.gather(copy.close(), original.close())
        assert not any(draft.held for draft in b.drafts)


async def test_a_draft_that_was_left_keeps_nothing_of_the_sequence() -> None:
    async with bench(draft_count=2) as b:
        assert b.pair.draft is not None
        left, other = b.pair.draft.links.values()
        moving = opening("moving")
        for link in (left, other, left):
            moving.enter(link)
            moving.start(link, PROMPT, None)
            await moving.finish()
            assert link.sequence_count == 1
            await until(lambda: [name for draft in b.drafts for name in draft.held] == [moving.name])
            assert fake_at(link, b).held
        await moving.close()
        await b.check_closed()


async def test_an_opening_that_is_carried_out_after_the_sequence_left_is_closed_as_well() -> None:
    """The draft was told to close it when it had not come yet."""
    async with bench(draft_count=2) as b:
        assert b.pair.draft is not None
        slow, other = b.pair.draft.links.values()
        moving = opening("moving")
        fake_at(slow, b).open_delay = WITHIN / 2
        moving.enter(slow)
        moving.start(slow, PROMPT, None)
        await asyncio.sleep(0.001)
        moving.enter(other)
        await until(lambda: bool(fake_at(slow, b).names))
        await until(lambda: not fake_at(slow, b).held)
        assert not moving.held_length
        await moving.close()
        await b.check_closed()


async def test_an_opening_that_fails_unexpectedly_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """The draft may have the sequence all the same."""
    async with bench() as b:
        assert b.pair.draft is not None
        (link,) = b.pair.draft.links.values()
        failing = opening("failing")
        b.draft.open_faults.after = {0: RuntimeError("a fault of ours")}
        failing.enter(link)
        failing.start(link, PROMPT, None)
        await until(lambda: bool(b.draft.held))
        await failing.close()
        await b.check_closed()
    assert "a fault of ours" in caplog.text


async def test_a_fork_that_fails_after_the_end_opens_nothing() -> None:
    async with bench(draft_count=2) as b:
        assert b.pair.draft is not None
        slow, other = b.pair.draft.links.values()
        original, copy = opening("original"), opening("copy")
        original.enter(slow)
        original.start(slow, PROMPT, None)
        await original.finish()
        fake_at(slow, b).fork_delay = 10 * WITHIN
        copy.enter(slow)
        copy.start(slow, PROMPT, original)
        await asyncio.sleep(0.01)
        copy.enter(other)
        await copy.close()
        await asyncio.sleep(2 * WITHIN)
        await original.close()
        assert not any(draft.held for draft in b.drafts)
