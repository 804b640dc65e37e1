"""What becomes of prepared proposals whose draft is lost, refused, or no longer to work ahead."""

from collections.abc import Callable

import pytest

from coordinator.adaptive import Decision
from coordinator.outputs.generation import Generation
from coordinator.peers.draft_session import DraftSession
from specpair.errors import InvalidDistributionError
from specpair.options import WorkAhead
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.outputs.test_work_ahead import hits, run_to_a_hit
from tests.unit.coordinator.pair_bench import PROMPT, bench


def lose_the_room(generation: Generation, patch: pytest.MonkeyPatch) -> None:
    """Another draft may have a shorter context, and a restarted one has none until it is checked."""
    patch.setattr(generation._draft, "room", lambda length: 0)


def lose_the_sequence(generation: Generation, patch: pytest.MonkeyPatch) -> None:
    """The call beside a prepared proposal may find that the draft has forgotten the sequence: it opens it again."""
    assert isinstance(generation._draft, DraftSession)
    patch.setattr(generation._draft._opening, "held_length", 0)
    patch.setattr(generation.proposals._length, "decide", lambda longest, **_: Decision(0, opens_draft=True))


@pytest.mark.parametrize("lose", [lose_the_room, lose_the_sequence])
async def test_what_a_lost_draft_had_prepared_is_used(
    lose: Callable[[Generation, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent early, so any other round would conflict with it at the target."""
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 60)
        before = hits(generation)
        with monkeypatch.context() as patch:
            lose(generation, patch)
            await anext(parts)
        assert hits(generation) == before + 1
        async for _ in parts:
            pass
        assert len(b.target.opened) == 1 and generation.output.token_ids == continuation(PROMPT, 60)


async def test_what_a_draft_prepared_before_it_was_refused_is_dropped() -> None:
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 60)
        before = hits(generation)
        assert generation._draft is not None
        generation._draft.leave_alone(InvalidDistributionError("proposal", "is odd"))
        await anext(parts)
        assert hits(generation) == before
        async for _ in parts:
            pass
        assert generation.output.token_ids == continuation(PROMPT, 60)


async def test_nothing_is_kept_once_the_draft_no_longer_works_ahead() -> None:
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 80)
        assert generation.proposals._preparations is not None
        generation.proposals._preparations._mode = WorkAhead.OFF
        for _ in range(4):
            await anext(parts)
        assert not b.draft.inbox._sequences
        await parts.aclose()
        await b.check_closed()
