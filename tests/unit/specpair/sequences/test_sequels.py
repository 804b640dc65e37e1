"""Steps to which a process goes on by itself."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from specpair.errors import ConflictingBodyError, SequenceNotFoundError, StaleStepError
from specpair.sequences.answer_memory import AnswerMemory
from tests.unit.specpair.sequences.stepped_target import Reply, Target, refusal, turn


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """A target that has begun with step 0, which ends with the stop "z"."""
    target = Target()
    yield target
    target.store.close_all()
    await turn()
    assert not target.store._answers._sizes and not target.store._answers._total


async def begun(target: Target, outcome: str = "a") -> "asyncio.Task[Reply]":
    """Step 0, ended; what follows is on its way."""
    call = target.call(0, stop="z")
    await turn()
    target.end(0, outcome)
    await turn()
    return call


async def test_the_next_step_begins_with_the_answer_and_its_call_finds_it(target: Target) -> None:
    first = await begun(target)
    assert (await first).outcome == "a" and target.started == [0, 1]
    assert target.held.is_ahead and not target.sequels()
    second = target.call(1, stop="z")
    await turn()
    assert not second.done() and not target.held.is_ahead
    target.end(1, "b")
    assert (await second).outcome == "b"
    await turn()
    assert target.started == [0, 1, 2] and target.sequels() == {"used": 1}


async def test_it_goes_one_step_ahead_of_the_calls(target: Target) -> None:
    await begun(target)
    target.end(1, "b")
    await turn()
    assert target.started == [0, 1]
    assert (await target.call(1, stop="z")).outcome == "b"
    await turn()
    assert target.started == [0, 1, 2]


async def test_nothing_follows_an_answer_that_ends_the_output(target: Target) -> None:
    await begun(target, "z")
    assert target.started == [0] and not target.held.is_ahead


async def test_a_call_that_is_repeated_begins_with_nothing_twice(target: Target) -> None:
    call, again = target.call(0, stop="z"), target.call(0, stop="z")
    await turn()
    target.end(0, "a")
    assert (await call) is (await again)
    await turn()
    assert target.started == [0, 1]


async def test_a_lost_answer_is_repeated_though_the_next_step_has_begun(target: Target) -> None:
    await begun(target)
    assert (await target.call(0, stop="z")).outcome == "a"
    target.end(1, "b")
    await turn()
    assert (await target.call(0)).outcome == "a"
    assert (await target.call(1)).outcome == "b"
    assert target.started == [0, 1]


async def test_it_is_kept_for_no_longer_than_the_next_step(target: Target) -> None:
    await begun(target)
    target.end(1, "b")
    await target.call(1)
    target.end(2, "c")
    await target.call(2)
    assert await refusal(target.call(0)) is StaleStepError
    assert await refusal(target.call(1)) is StaleStepError


async def test_another_call_than_the_one_that_was_begun_conflicts(target: Target) -> None:
    await begun(target)
    assert await refusal(target.call(1, b"other")) is ConflictingBodyError
    assert await refusal(target.call(0, b"other")) is ConflictingBodyError
    target.end(1, "b")
    assert (await target.call(1)).outcome == "b"


async def test_a_step_that_fails_is_as_if_it_had_never_begun(target: Target) -> None:
    await begun(target)
    target.end_of(1).set_exception(RuntimeError("the pass failed"))
    await turn()
    assert target.held.last_step == 0 and target.sequels() == {"dropped": 1}
    assert (await target.call(0)).outcome == "a"
    target.ends.clear()
    target.end(1, "b")
    assert (await target.call(1, b"other")).outcome == "b"


async def test_a_later_step_that_fails_takes_no_answer_away(target: Target) -> None:
    await begun(target)
    target.end(1, "b")
    await turn()
    kept = dict(target.store._answers._sizes)
    later = target.call(2)
    await turn()
    target.end_of(2).set_exception(StaleStepError("refused"))
    assert await refusal(later) is StaleStepError
    assert target.store._answers._sizes == kept
    assert (await target.call(0)).outcome == "a"
    assert (await target.call(1)).outcome == "b"
    assert target.sequels() == {"used": 1}, "and the step that was begun is no dropped one"


async def test_a_later_step_drops_it_once(target: Target) -> None:
    await begun(target)
    target.end(1, "b")
    await turn()
    later = target.call(2)
    await turn()
    target.end(2, "c")
    await later
    assert target.sequels() == {"dropped": 1}
    target.store.close("s")
    assert target.sequels() == {"dropped": 1}


@pytest.mark.parametrize("turns", [0, 10])
async def test_a_sequence_that_is_closed_during_a_later_step_drops_it_once(target: Target, turns: int) -> None:
    """Also one whose task has not run yet."""
    await begun(target)
    target.end(1, "b")
    await turn()
    later = target.call(2)
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    target.store.close("s")
    assert await refusal(later) is SequenceNotFoundError
    assert target.sequels() == {"dropped": 1}


async def test_a_sequence_that_is_closed_after_a_later_step_that_failed_drops_it_once(target: Target) -> None:
    await begun(target)
    target.end(1, "b")
    await turn()
    later = target.call(2)
    await turn()
    target.end_of(2).set_exception(StaleStepError("refused"))
    assert await refusal(later) is StaleStepError
    target.store.close("s")
    assert target.sequels() == {"dropped": 1}


async def test_what_is_wrong_with_it_is_left_to_its_call(target: Target) -> None:
    sequel = target.sequel(0, "z")

    def refuse(answer: Reply) -> bytes:
        raise StaleStepError("too long")

    object.__setattr__(sequel, "body", refuse)
    call = asyncio.create_task(target.store.step("s", 0, b"body", lambda held: target.compute(0), sequel))
    target.end(0, "a")
    await call
    await turn()
    assert target.held.last_step == 0 and not target.held.is_ahead and not target.sequels()


async def test_a_sequence_that_is_closed_drops_it(target: Target) -> None:
    await begun(target)
    target.store.close("s")
    await turn()
    assert target.sequels() == {"dropped": 1}
    with pytest.raises(SequenceNotFoundError):
        await target.call(1)


async def test_a_rollback_forgets_both_answers(target: Target) -> None:
    await begun(target)
    assert await refusal(asyncio.create_task(target.store.rollback("s", 2))) is StaleStepError  # type: ignore[arg-type]
    target.end(1, "b")
    await turn()
    await target.store.rollback("s", 2)
    assert await refusal(target.call(0)) is StaleStepError
    assert await refusal(target.call(1)) is StaleStepError


async def test_full_memory_drops_the_answer_before_and_no_step_under_way(target: Target) -> None:
    target.store._answers = AnswerMemory(limit=15)
    await begun(target)
    target.open("t")
    await target.call(0, name="t")
    assert target.held.before is None and target.held.answer is not None
    assert await refusal(target.call(0)) is StaleStepError
    target.end(1, "b")
    assert (await target.call(1)).outcome == "b"
