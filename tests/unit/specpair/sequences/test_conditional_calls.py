"""Calls that depend on the answer of a step: every order of what may happen to both."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from specpair.errors import (
    BaseLengthMismatchError,
    CapacityExhaustedError,
    ConditionNotMetError,
    ConflictingBodyError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.sequences import conditional_calls
from specpair.sequences.answer_memory import AnswerMemory
from specpair.sequences.held_sequence import HeldSequence
from tests.unit.specpair.sequences.stepped_target import Expected, Reply, Target, refusal, turn


async def test_of_many_calls_the_one_whose_condition_is_met_begins() -> None:
    target = Target()
    first = target.call(0)
    waiting = {outcome: target.call_if(outcome, body=outcome.encode()) for outcome in ("a", "b", "c")}
    await turn()
    assert target.started == [0] and not any(call.done() for call in waiting.values())
    target.end(0, "b")
    assert (await first).outcome == "b"
    assert [await refusal(waiting[name]) for name in ("a", "c")] == [ConditionNotMetError] * 2
    assert target.started == [0, 1] and (target.held.last_step, target.held.last_body) == (1, b"b")
    target.end(1, "next")
    assert (await waiting["b"]).outcome == "next"
    assert target.outcomes() == {"met": 1, "not_met": 2}
    assert not target.store.conditional_calls._counts and not target.held.waiting


async def test_a_call_that_comes_after_the_verdict_is_decided_on_at_once() -> None:
    target = Target()
    await target.answered(0, "a")
    before = target.state()
    assert await refusal(target.call_if("b")) is ConditionNotMetError
    assert target.state() == before
    call = target.call_if("a")
    target.end(1, "next")
    assert (await call).outcome == "next"


async def test_a_call_may_wait_for_one_that_waited_itself() -> None:
    target = Target()
    target.call(0)
    second = target.call_if("a", step=1)
    target.end(0, "a")
    await turn()
    third = target.call_if("b", step=2)
    await turn()
    assert target.started == [0, 1] and not third.done()
    target.end(1, "b")
    target.end(2, "c")
    assert [(await call).outcome for call in (second, third)] == ["b", "c"]


async def test_what_is_neither_under_way_nor_last_is_not_waited_for() -> None:
    target = Target()
    assert await refusal(target.call_if("a")) is ConditionNotMetError  # nothing was taken yet
    await target.answered(0, "a")
    assert await refusal(target.call_if("a", step=3)) is ConditionNotMetError
    await target.answered(1, "b")
    before = target.state()
    assert await refusal(target.call_if("a", body=b"other")) is ConditionNotMetError
    assert target.state() == before and target.outcomes() == {"late": 3}


@pytest.mark.parametrize("how", ["rolled back", "dropped", "forked"])
async def test_an_answer_that_is_gone_meets_no_condition(how: str) -> None:
    target, name = Target(), "s"
    await target.answered(0, "a")
    if how == "rolled back":
        await target.store.rollback("s", 2)
    elif how == "forked":
        name = "copy"
        await target.store.fork("s", name, 2, None)
    else:
        target.store._answers = AnswerMemory(limit=1)
        target.open("other")
        for held in (target.held, target.store.get("other")):
            target.store._answers.keep(held, 1)
    assert await refusal(target.call_if("a", name=name)) is ConditionNotMetError


async def test_whose_sequence_it_is_decides_whether_there_is_one() -> None:
    target = Target()
    await target.answered(0, "a")
    assert await refusal(target.call_if("a", name="unknown")) is SequenceNotFoundError
    target.client = "two"
    assert await refusal(target.call_if("a")) is SequenceNotFoundError


async def test_a_repetition_is_answered_as_the_first_call() -> None:
    """While it is computed and afterwards, with the condition and without; computed once."""
    target = Target()
    target.call(0)
    calls = [target.call_if("a"), target.call_if("a")]
    target.end(0, "a")
    await turn()
    calls += [target.call_if("a"), target.call(1)]
    await turn()
    target.end(1, "b")
    calls += [target.call_if("a"), target.call(1), target.call_if("wrong")]
    assert {(await call).outcome for call in calls} == {"b"}
    assert target.started == [0, 1]


@pytest.mark.parametrize("turns", range(8))
async def test_both_calls_of_a_step_at_once_are_one(turns: int) -> None:
    """The ordinary call comes however soon after the verdict: also before those that wait are decided on."""
    target = Target()
    target.call(0)
    waiting = target.call_if("a")
    await turn()
    target.end(0, "a")
    for _ in range(turns):
        await asyncio.sleep(0)
    ordinary = target.call(1)
    await turn()
    target.end(1, "b")
    assert [(await call).outcome for call in (waiting, ordinary)] == ["b", "b"]
    assert target.started == [0, 1]


async def test_two_that_are_met_with_different_bodies_are_a_conflict() -> None:
    target = Target()
    target.call(0)
    first, second = target.call_if("a", body=b"first"), target.call_if("a", body=b"second")
    await turn()
    target.end(0, "a")
    assert await refusal(second) is ConflictingBodyError
    assert target.held.last_body == b"first" and not first.done()


async def test_waiting_calls_keep_no_ordinary_call_from_what_it_gets() -> None:
    target = Target()
    first = target.call(0)
    waiting = target.call_if("a")
    await turn()
    assert await refusal(target.call(1)) is StaleStepError  # as ever: step 0 is under way
    assert await refusal(target.call(0, body=b"other")) is ConflictingBodyError
    again = target.call(0)
    target.end(0, "b")
    assert (await first) == (await again)
    ordinary = target.call(1)
    target.end(1, "c")
    assert (await ordinary).outcome == "c"
    assert await refusal(waiting) is ConditionNotMetError


async def test_a_step_that_fails_meets_no_condition() -> None:
    target = Target()
    await target.answered(0, "a")
    before = target.state()
    failing, waiting = target.call(1), target.call_if("a", step=2)
    await turn()
    target.end_of(1).set_exception(ZeroDivisionError())
    assert await refusal(failing) is ZeroDivisionError
    assert await refusal(waiting) is ConditionNotMetError
    assert target.state() == before and target.started == [0, 1]
    target.ends.clear()
    again = target.call_if("a", step=1)  # its condition is the last answer once more
    target.end(1, "b")
    assert (await again).outcome == "b"


async def test_a_call_that_is_met_and_refused_leaves_its_step_free() -> None:
    target = Target()
    target.call(0)

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        raise BaseLengthMismatchError(9, 3)

    call = asyncio.create_task(target.store.step_if(Expected(0, "a"), "s", 1, lambda: b"body", begin))
    await turn()
    target.end(0, "a")
    assert await refusal(call) is BaseLengthMismatchError
    assert target.held.last_step == 0
    await target.answered(1, "b")
    assert target.outcomes() == {"met": 1}


async def test_a_closed_sequence_ends_the_wait_at_once() -> None:
    target = Target()
    first, waiting = target.call(0), target.call_if("a")
    await turn()
    target.store.close("s")
    assert [await refusal(call) for call in (first, waiting)] == [SequenceNotFoundError] * 2
    target.open("s")
    assert target.held.last_step == -1 and target.started == [0]
    assert target.outcomes() == {"ended": 1} and not target.store.conditional_calls._bytes


async def test_a_sequence_that_is_closed_with_the_verdict_begins_nothing() -> None:
    target = Target()
    target.call(0)
    waiting = target.call_if("a")
    await turn()
    answer = target.held.answer
    assert answer is not None
    answer.add_done_callback(lambda _: None)
    target.end(0, "a")
    while not answer.done():
        await asyncio.sleep(0)
    target.store.close("s")
    assert await refusal(waiting) is SequenceNotFoundError
    assert target.started == [0]


async def test_work_of_a_call_that_has_just_begun_ends_with_the_sequence() -> None:
    """Its task has not run yet, so nothing else would cancel the work."""
    target = Target()
    await target.answered(0, "a")
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        held.work = work
        asyncio.get_running_loop().call_soon(target.store.close, "s")
        return lambda: target.compute(1)

    call = asyncio.create_task(target.store.step_if(Expected(0, "a"), "s", 1, lambda: b"body", begin))
    assert await refusal(call) is SequenceNotFoundError
    assert work.cancelled() and target.started == [0]


async def test_a_caller_that_leaves_is_not_begun_for() -> None:
    target = Target()
    first = target.call(0)
    leaving, staying = target.call_if("a", body=b"leaving"), target.call_if("b", body=b"staying")
    await turn()
    leaving.cancel()
    assert await refusal(leaving) is asyncio.CancelledError
    assert len(target.held.waiting) == 1
    target.end(0, "a")
    await first
    assert await refusal(staying) is ConditionNotMetError
    assert target.started == [0] and target.held.last_step == 0
    assert target.outcomes() == {"ended": 1, "not_met": 1}


async def test_nor_for_one_that_leaves_with_the_verdict() -> None:
    """It has not even noticed yet."""
    target, loop = Target(), asyncio.get_running_loop()
    leaving: list[asyncio.Task[Reply]] = []
    target.end_of(0).add_done_callback(lambda _: loop.call_soon(leaving[0].cancel))
    first = target.call(0)
    leaving.append(target.call_if("a"))
    await turn()
    target.end(0, "a")
    assert (await first).outcome == "a"
    assert await refusal(leaving[0]) is asyncio.CancelledError
    assert target.started == [0] and target.held.last_step == 0


async def test_what_has_begun_goes_on_without_its_caller() -> None:
    target = Target()
    target.call(0)
    leaving = target.call_if("a")
    await turn()
    target.end(0, "a")
    await turn()
    leaving.cancel()
    assert await refusal(leaving) is asyncio.CancelledError
    target.end(1, "b")
    await turn()
    assert (await target.call(1)).outcome == "b" and target.started == [0, 1]


async def test_the_next_step_begins_before_the_answers_are_given() -> None:
    target, order = Target(), []
    first, repeated = target.call(0), target.call(0)
    for call in (first, repeated):
        call.add_done_callback(lambda _: order.append("answered"))

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        order.append("begun")
        return lambda: target.compute(1)

    following = asyncio.create_task(target.store.step_if(Expected(0, "a"), "s", 1, lambda: b"body", begin))
    await turn()
    target.end(0, "a")
    await turn()
    assert not following.done()
    assert order == ["begun", "answered", "answered"]


async def test_nothing_is_made_of_calls_whose_condition_is_not_met() -> None:
    target, made = Target(), []
    target.call(0)

    def body() -> bytes:
        made.append("body")
        return b"body"

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        made.append("call")
        return lambda: target.compute(1)

    call = asyncio.create_task(target.store.step_if(Expected(0, "a"), "s", 1, body, begin))
    await turn()
    target.end(0, "b")
    assert await refusal(call) is ConditionNotMetError and made == []


@pytest.mark.parametrize("limit", ["SEQUENCE", "CLIENT", "BYTES_PER_CLIENT"])
async def test_the_calls_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    name = f"MAX_WAITING_PER_{limit}" if limit != "BYTES_PER_CLIENT" else f"MAX_WAITING_{limit}"
    monkeypatch.setattr(conditional_calls, name, 20 if limit == "BYTES_PER_CLIENT" else 2)
    target = Target()
    target.open("t")
    for sequence in ("s", "t"):
        target.call(0, name=sequence)
    waiting = [target.call_if("a", size=10), target.call_if("b", size=10)]
    await turn()
    refused = target.call_if("c", size=10)
    assert await refusal(refused) is CapacityExhaustedError
    assert "at most 2" in str(refused.exception())
    other = target.call_if("c", name="t", size=10)
    assert (await refusal(other) is None) is (limit == "SEQUENCE")
    waiting[0].cancel()
    await turn()
    again = target.call_if("c", size=10)
    await turn()
    assert not again.done() and not waiting[1].done()
    target.end(0, "c")
    await turn()
    assert not target.store.conditional_calls._counts and not target.store.conditional_calls._bytes
    assert target.outcomes()["full"] == (1 if limit == "SEQUENCE" else 2)


async def test_another_client_has_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_calls, "MAX_WAITING_PER_CLIENT", 1)
    target = Target()
    target.call(0)
    target.call_if("a")
    await turn()
    target.client = "two"
    target.open("s")
    target.call(0)
    waiting = target.call_if("a")
    await turn()
    assert not waiting.done()
