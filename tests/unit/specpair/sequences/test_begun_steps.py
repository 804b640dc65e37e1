"""Steps that the device thread has begun before the event loop knows of the answer that they follow."""

import asyncio

import pytest

from specpair.errors import LengthNotReachedError, SequenceNotFoundError, StaleStepError
from specpair.sequences.conditional_calls import Begun
from specpair.sequences.held_sequence import HeldSequence
from tests.unit.specpair.sequences.stepped_target import Expected, Reply, Target, refusal, turn


async def begun(target: Target, *, is_told: bool) -> "asyncio.Task[Reply]":
    """Step 0, under way; what follows is known."""
    call = target.call(0, stop=None if is_told else "z")
    await turn()
    if is_told:
        target.tell_if("b")
        target.tell_if("a")
    return call


@pytest.mark.parametrize("is_told", [True, False])
async def test_the_next_step_takes_them_over(is_told: bool) -> None:
    target = Target()
    first = await begun(target, is_told=is_told)
    target.end(0, "a", goes_on=True)
    assert (await first).outcome == "a"
    await turn()
    assert target.started == [0, 1] and [begun.is_taken for begun in target.begun] == [True]
    target.end(1, "b")
    assert (await target.call(1)).outcome == "b"
    assert not target.begun[0].work.future.done() and target.held.begun is None


async def test_nothing_else_is_taken_before_that() -> None:
    """The device may feed its tokens. This is the moment after the answer, before the waiting calls are decided on."""
    target = Target()
    first = await begun(target, is_told=False)
    target.end(0, "a", goes_on=True)
    held, store = target.held, target.store
    under_way, held.answer = held.answer, done(Reply("a"))
    assert held.is_busy and store.step_at_once("s", 1, b"body", lambda held: Reply("x")) is None
    calls = store.rollback("s", 2), store.fork("s", "t", None, None), store.step("s", 1, b"body", never)
    for call in calls:
        with pytest.raises(StaleStepError):
            call.send(None)
    store.step_unanswered(Expected(0, "a"), "s", 1, lambda: b"body", never, 1)  # type: ignore[arg-type]
    assert len(held.waiting) == 2  # decided on with the others
    held.answer = under_way
    assert (await first).outcome == "a"
    await turn()
    assert target.begun[0].is_taken and target.outcomes() == {"met": 1}


def done(reply: Reply) -> "asyncio.Future[Reply]":
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future


async def never(held: HeldSequence[Reply]) -> Reply:
    raise AssertionError


async def test_no_other_call_begins_where_it_cannot_be_taken() -> None:
    """The wrong call was begun: its step is over. The right one would move tokens that may be in a pass."""
    target = Target()
    call = target.call(0)
    await turn()
    target.tell_if("a", step=0, body=b"other", after=0)
    target.tell_if("a")
    target.end(0, "a", goes_on=True)
    await asyncio.wait([call])
    await turn()
    assert target.begun[0].work.future.cancelled() and target.started == [0] and not target.store._held
    assert not target.store.conditional_calls._counts


@pytest.mark.parametrize("is_told", [True, False])
async def test_they_end_with_the_sequence(is_told: bool) -> None:
    target = Target()
    first = await begun(target, is_told=is_told)
    target.end(0, "a", goes_on=True)
    target.store.close("s")
    assert await refusal(first) is SequenceNotFoundError
    assert target.begun[0].work.future.cancelled() and not target.begun[0].is_taken
    assert target.sequels() == ({} if is_told else {"dropped": 1})


async def test_a_sequence_whose_begun_step_cannot_be_taken_is_closed() -> None:
    """Its tokens may be fed at this moment, so no other call may move it."""
    target = Target()
    first = await begun(target, is_told=False)

    def refuse(answer: Reply) -> bytes:
        raise LengthNotReachedError(9, 3)

    object.__setattr__(target.held.waiting[0].condition, "body", refuse)
    target.end(0, "a", goes_on=True)
    await turn()
    assert first.exception() is None or isinstance(first.exception(), SequenceNotFoundError)
    assert target.begun[0].work.future.cancelled()
    with pytest.raises(SequenceNotFoundError):
        await target.call(1)


async def test_a_sequence_whose_answer_fails_afterwards_is_closed() -> None:
    target = Target()
    first = await begun(target, is_told=False)
    held = target.held
    call = held.call_after(0, Reply("a"))
    assert call is not None
    target.end_of(0).set_exception(ZeroDivisionError())

    held.begun = Begun(call, *target.begin_on_device(1, None))
    await asyncio.wait([first])
    await turn()
    assert not held.is_open and held.begun is None and target.sequels() == {"dropped": 1}


async def test_an_answer_of_another_step_begins_with_nothing() -> None:
    """The device thread may be a step ahead of the event loop: what waits there is for the step before."""
    target = Target()
    await begun(target, is_told=False)
    assert target.held.call_after(0, Reply("a")) is not None
    assert target.held.call_after(1, Reply("a")) is None
    target.end(0, "z")
    await turn()
