"""Calls that depend on the answer of a step: every order of what may happen to both."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from specpair.errors import CapacityExhaustedError, ConflictingBodyError, SequenceNotFoundError, StaleStepError
from specpair.sequences import conditional_calls
from specpair.sequences.answer_memory import AnswerMemory
from specpair.sequences.held_sequence import HeldSequence
from tests.unit.specpair.sequences.stepped_target import Expected, Reply, Target, refusal, turn


async def under_way(*expected: str) -> Target:
    """A target whose step 0 is under way, with calls of step 1 in case it ends as `expected`."""
    target = Target()
    target.call(0)
    await turn()
    for outcome in expected:
        target.tell_if(outcome, body=outcome.encode())
    return target


async def test_a_call_may_wait_for_one_that_waited_itself() -> None:
    target = await under_way("a")
    target.end(0, "a")
    await turn()
    target.tell_if("b", step=2)
    await turn()
    assert target.started == [0, 1]
    target.end(1, "b")
    await turn()
    target.end(2, "c")
    assert (await target.call(2)).outcome == "c"
    assert target.started == [0, 1, 2] and target.outcomes() == {"met": 2}


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
    target.tell_if("a", name=name)
    await turn()
    assert target.outcomes() == {"late": 1} and target.started == [0]


async def test_whose_sequence_it_is_decides_whether_there_is_one() -> None:
    target = Target()
    await target.answered(0, "a")
    with pytest.raises(SequenceNotFoundError):
        target.tell_if("a", name="unknown")
    target.client = "two"
    with pytest.raises(SequenceNotFoundError):
        target.tell_if("a")
    assert target.outcomes() == {} and target.started == [0]


async def test_a_repetition_is_the_first_call() -> None:
    """While it waits, while it is computed and afterwards; computed once."""
    target = await under_way("a", "a")
    target.end(0, "a")
    await turn()
    target.tell_if("a", body=b"a")
    calls = [target.call(1, b"a")]
    await turn()
    target.end(1, "b")
    calls += [target.call(1, b"a")]
    for expected in ("a", "wrong"):
        target.tell_if(expected, body=b"a")
    assert {(await call).outcome for call in calls} == {"b"}
    assert target.started == [0, 1] and target.outcomes() == {"met": 2, "late": 3}


@pytest.mark.parametrize("turns", range(8))
async def test_both_calls_of_a_step_at_once_are_one(turns: int) -> None:
    """The ordinary call comes however soon after the verdict: also before those that wait are decided on."""
    target = await under_way("a")
    target.end(0, "a")
    for _ in range(turns):
        await asyncio.sleep(0)
    ordinary = target.call(1, b"a")
    await turn()
    target.end(1, "b")
    assert (await ordinary).outcome == "b"
    assert target.started == [0, 1] and target.outcomes() == {"met": 1}


async def test_of_two_that_are_met_with_different_bodies_the_first_begins() -> None:
    target = await under_way()
    target.tell_if("a", body=b"first")
    target.tell_if("a", body=b"second")
    target.end(0, "a")
    await turn()
    assert target.held.last_body == b"first" and target.started == [0, 1]
    assert await refusal(target.call(1, b"second")) is ConflictingBodyError
    target.end(1, "b")
    assert (await target.call(1, b"first")).outcome == "b"


async def test_waiting_calls_keep_no_ordinary_call_from_what_it_gets() -> None:
    target = await under_way("a")
    first = target.call(0)
    assert await refusal(target.call(1)) is StaleStepError  # as ever: step 0 is under way
    assert await refusal(target.call(0, body=b"other")) is ConflictingBodyError
    again = target.call(0)
    target.end(0, "b")
    assert (await first) == (await again)
    ordinary = target.call(1)
    target.end(1, "c")
    assert (await ordinary).outcome == "c"
    assert target.started == [0, 1] and target.outcomes() == {"not_met": 1}


async def test_a_step_that_fails_meets_no_condition() -> None:
    target = Target()
    await target.answered(0, "a")
    before = target.state()
    failing = target.call(1)
    await turn()
    target.tell_if("a", step=2)
    target.end_of(1).set_exception(ZeroDivisionError())
    assert await refusal(failing) is ZeroDivisionError
    assert target.state() == before and target.started == [0, 1] and target.outcomes() == {"not_met": 1}
    target.ends.clear()
    target.tell_if("a", step=1)  # its condition is the last answer once more
    target.end(1, "b")
    assert (await target.call(1)).outcome == "b" and target.outcomes() == {"not_met": 1, "met": 1}


async def test_a_closed_sequence_ends_the_wait_at_once() -> None:
    target = await under_way("a")
    first = target.call(0)
    target.store.close("s")
    assert await refusal(first) is SequenceNotFoundError
    assert target.outcomes() == {"ended": 1}
    assert not target.store.conditional_calls._counts and not target.store.conditional_calls._bytes
    target.open("s")
    assert target.held.last_step == -1 and target.started == [0]


async def test_a_sequence_that_is_closed_with_the_verdict_begins_nothing() -> None:
    target = await under_way("a")
    answer = target.held.answer
    assert answer is not None
    answer.add_done_callback(lambda _: None)
    target.end(0, "a")
    while not answer.done():
        await asyncio.sleep(0)
    target.store.close("s")
    await turn()
    assert target.outcomes() == {"ended": 1} and target.started == [0]


async def test_work_of_a_call_that_has_just_begun_ends_with_the_sequence() -> None:
    """Its task has not run yet, so nothing else would cancel the work."""
    target = Target()
    await target.answered(0, "a")
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        held.work = work
        asyncio.get_running_loop().call_soon(target.store.close, "s")
        return lambda: target.compute(1)

    target.store.step_unanswered(Expected(0, "a"), "s", 1, lambda: b"body", begin)
    await turn()
    assert work.cancelled() and target.started == [0] and target.outcomes() == {"met": 1}


async def test_the_next_step_begins_before_the_answers_are_given() -> None:
    target, order = await under_way(), []
    for call in (target.call(0), target.call(0)):
        call.add_done_callback(lambda _: order.append("answered"))

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        order.append("begun")
        return lambda: target.compute(1)

    target.store.step_unanswered(Expected(0, "a"), "s", 1, lambda: b"body", begin)
    await turn()
    target.end(0, "a")
    await turn()
    assert order == ["begun", "answered", "answered"]


async def test_nothing_is_made_of_calls_whose_condition_is_not_met() -> None:
    target, made = await under_way(), []

    def body() -> bytes:
        made.append("body")
        return b"body"

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        made.append("call")
        return lambda: target.compute(1)

    target.store.step_unanswered(Expected(0, "a"), "s", 1, body, begin)
    target.end(0, "b")
    await turn()
    assert target.outcomes() == {"not_met": 1} and made == []


async def two_under_way() -> Target:
    """The same target with step 5 of another sequence under way, too."""
    target = await under_way()
    target.open("t")
    target.call(5, name="t")
    await turn()
    return target


async def test_the_calls_that_wait_for_one_step_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_calls, "MAX_WAITING_PER_SEQUENCE", 2)
    target = await two_under_way()
    target.tell_if("a")
    target.tell_if("b")
    with pytest.raises(CapacityExhaustedError, match="at most 2"):
        target.tell_if("c")
    target.tell_if("c", step=6, name="t")
    assert len(target.held.waiting) == 2 and target.outcomes() == {"full": 1}
    target.end(0, "c")
    await turn()
    await target.answered(1, "d")
    assert target.outcomes() == {"full": 1, "not_met": 2}


@pytest.mark.parametrize(("limit", "value"), [("MAX_WAITING_PER_CLIENT", 2), ("MAX_WAITING_BYTES_PER_CLIENT", 20)])
async def test_the_calls_of_a_client_that_wait_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(conditional_calls, limit, value)
    target = await two_under_way()
    target.tell_if("a", size=10)
    target.tell_if("a", step=6, name="t", size=10)
    for step, name in ((1, "s"), (6, "t")):
        with pytest.raises(CapacityExhaustedError, match=f"at most {value}"):
            target.tell_if("b", step=step, name=name, size=10)
    target.store.close("s")
    await turn()
    target.tell_if("b", step=6, name="t", size=10)  # there is room again
    assert target.outcomes() == {"full": 2, "ended": 1}
    target.end_of(5).set_result("b")
    await turn()
    assert not target.store.conditional_calls._counts and not target.store.conditional_calls._bytes
    assert target.outcomes() == {"full": 2, "ended": 1, "not_met": 1, "met": 1}


async def test_another_client_has_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_calls, "MAX_WAITING_PER_CLIENT", 1)
    target = await under_way("a")
    target.client = "two"
    target.open("s")
    target.call(0)
    await turn()
    target.tell_if("a")
    assert len(target.held.waiting) == 1 and target.outcomes() == {}
