"""One sequence at a draft."""

import asyncio
from dataclasses import replace

from coordinator.peers import DraftSession
from specpair.options import SamplingOptions, SequenceOptions
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import PROMPT, bench, until


async def test_a_draft_holds_what_it_was_sent_and_not_what_was_committed_during_the_call() -> None:
    """The round before may end meanwhile; a draft that was taken to hold its tokens would have to be opened again."""
    async with bench() as b:
        assert b.pair.draft is not None
        options = SequenceOptions(sampling=SamplingOptions())
        session = DraftSession(b.pair.draft, "ahead", len(PROMPT), options, timeout=2.0, cooldown=0.001)
        history = list(PROMPT)
        b.draft.delay = 0.1
        call = asyncio.create_task(session.propose(1, history, 2))
        await asyncio.sleep(0.05)
        history += continuation(PROMPT, 2)
        assert await call is not None
        assert await session.propose(2, history, 2) is not None
        assert len(b.draft.opened) == 1
        await session.close()
        await b.check_closed()


async def test_a_sequence_that_is_being_opened_again_is_not_opened_beside_that() -> None:
    """A call that no round waits for may find it lost. It would then ask for the other opening, before that is there,
    and the draft would be left alone."""
    async with bench() as b:
        assert b.pair.draft is not None
        options = SequenceOptions(sampling=SamplingOptions())
        session = DraftSession(b.pair.draft, "lost", len(PROMPT), options, timeout=2.0, cooldown=30.0)
        history = list(PROMPT)
        assert await session.propose(1, history, 2) is not None
        b.draft.held.clear()
        b.draft.open_delay = 0.05
        call = asyncio.create_task(session.propose(2, history, 2))
        await asyncio.sleep(0.01)
        assert not session.is_ready and session.start(history)
        assert await call is not None and session.is_ready
        assert len(b.draft.opened) == 2 and await session.propose(3, history, 2) is not None
        await session.close()
        await b.check_closed()


async def test_a_late_call_to_a_draft_that_was_left_opens_nothing_there() -> None:
    """It would cost the sequence what it has at the other draft."""
    async with bench(draft_count=2) as b:
        assert b.pair.draft is not None
        options = SequenceOptions(sampling=SamplingOptions())
        session = DraftSession(b.pair.draft, "moving", len(PROMPT), options, timeout=2.0, cooldown=30.0)
        history = list(PROMPT)
        assert await session.propose(1, history, 2) is not None
        left = next(draft for draft in b.drafts if draft.held)
        left.delay = 0.4  # longer than all that follows, on a busy machine too
        late = [asyncio.create_task(session.propose(step, history, 2)) for step in (2, 3)]
        await asyncio.sleep(0.01)  # the first is under way, the second behind it
        left.say_health(is_serving=False)
        link = b.pair.draft.links[left.address]
        await until(lambda: not link.is_usable)
        assert await session.propose(4, history, 2) is not None
        assert [answer is None for answer in await asyncio.gather(*late)] == [False, True]
        assert len(left.opened) == 1 and session.is_ready and await session.propose(5, history, 2) is not None
        await session.close()
        await b.check_closed()


async def test_a_draft_that_knows_no_places_is_not_merged() -> None:
    """It would draw by the numbers of another, and the two draws would not be independent."""
    async with bench() as b:
        assert b.pair.draft is not None
        options = SequenceOptions(sampling=SamplingOptions(), draft_index=1)
        session = DraftSession(b.pair.draft, "placed", len(PROMPT), options, timeout=2.0, cooldown=0.001)
        assert await session.propose(1, list(PROMPT), 2) is None and not b.draft.opened
        (link,) = b.pair.draft.links.values()
        assert link.info is not None
        link.info = replace(link.info, takes_draft_index=True)
        assert await session.propose(2, list(PROMPT), 2) is not None
        await session.close()
        await b.check_closed()
