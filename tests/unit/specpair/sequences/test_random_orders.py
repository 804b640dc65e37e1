"""Random orders of calls (on condition, with a sequel), verdicts, failures, cancellations, rollbacks and closes."""

import asyncio
from random import Random

import pytest

from specpair.errors import (
    ConditionNotMetError,
    ConflictingBodyError,
    SequenceNotFoundError,
    SpecpairError,
    StaleStepError,
)
from tests.unit.specpair.sequences.stepped_target import Reply, Target, turn

OUTCOMES = "abc"
EVENTS = 60


class Sent:
    """A call, and the condition that it had."""

    def __init__(self, call: "asyncio.Task[Reply]", step: int, body: bytes, expected: str | None = None):
        self.call, self.step, self.body, self.expected = call, step, body, expected


class Play:
    """One sequence and what has happened to it."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.target = Target()
        self.sent: list[Sent] = []
        self.ended: dict[int, str] = {}
        """Outcomes of the steps that were computed."""
        self.bodies: dict[int, bytes] = {}
        self.told = 0

    def next_step(self) -> int:
        return max(0, self.target.held.last_step + self.random.choice([-1, 0, 0, 1, 1, 1, 1, 2]))

    async def event(self) -> None:
        """Something happens, and everything comes to rest that can."""
        kinds = [self.call] * 4 + [self.call_if] * 8 + [self.tell_if] * 4 + [self.end] * 5
        kinds += [self.fail, self.cancel, self.roll_back]
        self.random.choice(kinds)()
        for _ in range(self.random.choice([1, 1, 2, 3])):
            await asyncio.sleep(0)
        if self.random.random() < 0.2:
            await turn()
            assert self.target.held.is_busy or not self.target.held.waiting

    def call(self) -> None:
        step, body = self.next_step(), self.random.choice([b"x", b"x", b"y"])
        stop = self.random.choice([None, None, "c"])
        self.sent.append(Sent(self.target.call(step, body, stop=stop, following=b"x"), step, body))

    def call_if(self) -> None:
        step, body, expected = self.next_step(), self.random.choice([b"x", b"x", b"y"]), self.random.choice(OUTCOMES)
        self.sent.append(Sent(self.target.call_if(expected, step, body), step, body, expected))

    def tell_if(self) -> None:
        body, expected = self.random.choice([b"x", b"x", b"y"]), self.random.choice(OUTCOMES)
        self.target.tell_if(expected, self.next_step(), body)
        self.told += 1

    def end(self) -> None:
        held = self.target.held
        step = held.last_step
        if held.is_busy and not self.target.end_of(step).done():
            self.ended[step], self.bodies[step] = self.random.choice(OUTCOMES), held.last_body
            self.target.end(step, self.ended[step], goes_on=self.random.random() < 0.5)

    def fail(self) -> None:
        """The step fails, and can be tried again."""
        held = self.target.held
        if held.is_busy and not self.target.end_of(held.last_step).done():
            self.target.ends.pop(held.last_step).set_exception(ZeroDivisionError())

    def cancel(self) -> None:
        if waiting := [sent for sent in self.sent if not sent.call.done()]:
            self.random.choice(waiting).call.cancel()

    def roll_back(self) -> None:
        if not self.target.held.is_busy:
            rollback = asyncio.ensure_future(self.target.store.rollback("s", 2))
            rollback.add_done_callback(lambda done: done.exception())

    async def finish(self) -> None:
        """Nothing waits that nothing will end; everybody got what the events say."""
        await turn()
        while self.target.held.is_busy:
            self.end()
            await turn()
        for sent in self.sent:
            self.judge(sent)
        assert not self.target.held.waiting and not self.target.store.conditional_calls._counts
        assert self.target.held.begun is None and all(begun.is_taken for begun in self.target.begun)
        assert len(set(self.ended) & set(self.target.started)) == len(self.ended)
        total = sum(self.target.store.conditional_calls.outcomes.values())
        assert total == sum(sent.expected is not None for sent in self.sent) + self.told

    def judge(self, sent: Sent) -> None:
        assert sent.call.done()
        if sent.call.cancelled():
            return
        error = sent.call.exception()
        if error is None:
            assert sent.call.result().outcome == self.ended[sent.step] and sent.body == self.bodies[sent.step]
            is_first = sent.expected is None or sent.expected == self.ended.get(sent.step - 1)
            assert is_first or "repeated" in self.target.outcomes()
        elif not isinstance(error, ZeroDivisionError):
            allowed = (StaleStepError, ConflictingBodyError, ConditionNotMetError)
            assert isinstance(error, SpecpairError) and isinstance(error, allowed)
            assert sent.expected is not None or not isinstance(error, ConditionNotMetError)


@pytest.mark.parametrize("seed", range(150))
async def test_any_order_of_events(seed: int) -> None:
    play = Play(seed)
    for _ in range(EVENTS):
        await play.event()
    await play.finish()


@pytest.mark.parametrize("seed", range(50))
async def test_a_close_at_any_time_ends_all(seed: int) -> None:
    play = Play(seed)
    for _ in range(play.random.randrange(2, EVENTS)):
        await play.event()
    play.target.store.close("s")
    await turn()
    assert all(sent.call.done() for sent in play.sent)
    assert not play.target.store.conditional_calls._counts
    assert all(begun.is_taken or begun.work.future.cancelled() for begun in play.target.begun)
    with pytest.raises(SequenceNotFoundError):
        await play.target.call_if("a")
