"""Calls on condition get no answer: the ordinary call of the step finds it under way, and nothing else is seen."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from specpair.errors import BaseLengthMismatchError, CapacityExhaustedError, ConflictingBodyError, SequenceNotFoundError
from specpair.sequences import conditional_calls
from specpair.sequences.cache_owner import NoCaches
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.sequences.stepped_target import Expected, Reply, Target, refusal, turn


async def test_the_ordinary_call_finds_the_step_that_was_begun() -> None:
    target = Target()
    first = target.call(0)
    await turn()
    for outcome in ("a", "b", "c"):
        target.tell_if(outcome, body=outcome.encode())
    target.end(0, "b")
    await first
    await turn()
    assert target.started == [0, 1] and target.held.last_body == b"b"
    assert target.held.answer is not None and target.store.taken("s", 0) is None
    assert target.store.taken("s", 1) == (1, b"b", target.held.answer)
    call = target.call(1, b"b")
    target.end(1, "next")
    assert (await call).outcome == "next" and target.started == [0, 1]
    assert target.outcomes() == {"met": 1, "not_met": 2}
    assert not target.store.conditional_calls._counts and not target.held.waiting


async def test_one_that_comes_after_the_verdict_is_decided_on_at_once() -> None:
    target = Target()
    await target.answered(0, "a")
    before = target.state()
    target.tell_if("b")
    assert target.state() == before
    target.tell_if("a")
    await turn()
    assert target.started == [0, 1]


async def test_what_is_neither_under_way_nor_last_changes_nothing() -> None:
    target = Target()
    target.tell_if("a")
    await target.answered(0, "a")
    target.tell_if("a", step=3)
    await target.answered(1, "b")
    before = target.state()
    target.tell_if("a", step=1)
    target.tell_if("a", step=1, body=b"other")
    assert target.state() == before
    await turn()
    assert target.outcomes() == {"late": 4} and target.started == [0, 1]


async def test_another_body_for_the_step_is_a_conflict_as_ever() -> None:
    target = Target()
    target.call(0)
    await turn()
    target.tell_if("a")
    target.end(0, "a")
    await turn()
    assert await refusal(target.call(1, b"other")) is ConflictingBodyError


async def test_a_step_that_fails_stays_free_and_nobody_is_told() -> None:
    target, told = Target(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    target.call(0)
    await turn()
    target.tell_if("a")
    target.end(0, "a")
    await turn()
    target.ends.pop(1).set_exception(ZeroDivisionError())
    await turn()
    gc.collect()
    assert target.held.last_step == 0 and "Task exception was never retrieved" not in told
    await target.answered(1, "b")


@pytest.mark.parametrize(
    ("error", "outcome"), [(BaseLengthMismatchError(9, 3), "met"), (CapacityExhaustedError("no blocks"), "full")]
)
async def test_one_that_cannot_begin_is_counted_and_no_pass_waits_for_it(error: Exception, outcome: str) -> None:
    target, given_up = Target(), list[Sequence]()

    class Caches(NoCaches):
        def expect_nothing(self, sequence: Sequence) -> None:
            given_up.append(sequence)

    target.store._caches = Caches()
    target.call(0)
    await turn()

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        raise error

    target.store.step_unanswered(Expected(0, "a"), "s", 1, lambda: b"body", begin, 1)
    target.end(0, "a")
    await turn()
    assert given_up == [target.held.cached] and target.held.last_step == 0
    assert target.outcomes() == {outcome: 1} and not target.store.conditional_calls._bytes
    await target.answered(1, "b")


async def test_what_nobody_expects_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    target = Target()
    await target.answered(0, "a")

    def body() -> bytes:
        raise ZeroDivisionError

    def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
        return lambda: target.compute(1)

    target.store.step_unanswered(Expected(0, "a"), "s", 1, body, begin, 1)
    assert "a call that gets no answer failed" in caplog.text and target.held.last_step == 0


async def test_those_after_a_step_that_fails_are_ended_even_if_a_later_one_was_taken_at_once() -> None:
    target = Target()
    target.call(0)
    await turn()
    target.tell_if("a")
    answer = target.held.answer
    assert answer is not None
    target.ends.pop(0).set_exception(ZeroDivisionError())
    while not answer.done():
        await asyncio.sleep(0)
    target.held.last_step = 5
    await turn()
    assert target.outcomes() == {"not_met": 1} and not target.store.conditional_calls._counts


async def test_those_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_calls, "MAX_WAITING_PER_SEQUENCE", 2)
    target = Target()
    target.call(0)
    await turn()
    for outcome in ("a", "b"):
        target.tell_if(outcome)
    with pytest.raises(CapacityExhaustedError):
        target.tell_if("c")
    target.store.close("s")
    await turn()
    assert not target.store.conditional_calls._counts and not target.store.conditional_calls._bytes
    assert target.outcomes() == {"ended": 2, "full": 1} and target.started == [0]
    with pytest.raises(SequenceNotFoundError):
        target.tell_if("a")


async def test_a_step_whose_answer_is_here_takes_no_turn() -> None:
    target = Target()
    assert target.store.step_at_once("s", 0, b"body", lambda held: Reply("a")) == Reply("a")
    assert (await target.call(0)).outcome == "a" and not target.started
    assert await refusal(target.call(0, b"other")) is ConflictingBodyError
    assert target.store.step_at_once("s", 0, b"body", lambda held: Reply("b")) is None, "it was taken"
    following = target.call(1)
    await turn()
    assert target.store.step_at_once("s", 2, b"body", lambda held: Reply("b")) is None, "another is under way"
    target.end(1, "c")
    await following
    before = target.state()
    assert target.store.step_at_once("s", 2, b"body", lambda held: None) is None
    assert target.state() == before
