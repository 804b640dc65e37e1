"""Random orders of calls (on condition, with a sequel), verdicts, failures, cancellations, rollbacks and closes."""

import asyncio
from random import Random

import pytest

from specpair.errors import ConflictingBodyError, SequenceNotFoundError, StaleStepError
from tests.unit.specpair.sequences.stepped_target import Reply, Target, turn

OUTCOMES = "abc"
EVENTS = 60


class Sent:
    """An ordinary call."""

    def __init__(self, call: "asyncio.Task[Reply]", step: int, body: bytes):
        self.call, self.step, self.body = call, step, body


class Play:
    """One sequence and what has happened to it."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.target = Target()
        self.sent: list[Sent] = []
        self.ended: dict[int, str] = {}
        """Outcomes of the steps that were computed."""
        self.bodies: dict[int, bytes] = {}
        self.told: list[tuple[int, bytes, str]] = []
        """Calls on condition, with the outcome that each is for. Their bodies say it, too."""

    def next_step(self) -> int:
        return max(0, self.target.held.last_step + self.random.choice([-1, 0, 0, 1, 1, 1, 1, 2]))

    async def event(self) -> None:
        """Something happens, and everything comes to rest that can."""
        kinds = [self.call] * 4 + [self.tell_if] * 12 + [self.end] * 5
        kinds += [self.fail, self.cancel, self.roll_back]
        self.random.choice(kinds)()
        for _ in range(self.random.choice([1, 1, 2, 3])):
            await asyncio.sleep(0)
        if self.random.random() < 0.2:
            await turn()
            assert self.target.held.is_busy or not self.target.held.waiting

    def call(self) -> None:
        step, body = self.next_step(), self.random.choice([b"x", b"x", b"y"])
        if self.random.random() < 0.3:  # the call that follows one on condition
            step, body = self.target.held.last_step, self.target.held.last_body or b"x"
        stop = self.random.choice([None, None, "c"])
        self.sent.append(Sent(self.target.call(step, body, stop=stop, following=b"x"), step, body))

    def tell_if(self) -> None:
        step, expected = self.next_step(), self.random.choice(OUTCOMES)
        body = self.random.choice(["first ", "first ", "second "]).encode() + expected.encode()
        self.target.tell_if(expected, step, body)
        self.told.append((step, body, expected))

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
        self.judge_told()
        assert not self.target.held.waiting and not self.target.store.conditional_calls._counts
        assert self.target.held.begun is None and all(begun.is_taken for begun in self.target.begun)
        assert len(set(self.ended) & set(self.target.started)) == len(self.ended)
        assert sum(self.target.store.conditional_calls.outcomes.values()) == len(self.told)

    def judge_told(self) -> None:
        """A call on condition began with a step only after the outcome that it was for."""
        called = {(sent.step, sent.body) for sent in self.sent}
        for step, body, expected in self.told:
            if self.bodies.get(step) == body and (step, body) not in called:
                assert self.ended[step - 1] == expected and "met" in self.target.outcomes()

    def judge(self, sent: Sent) -> None:
        assert sent.call.done()
        if sent.call.cancelled():
            return
        error = sent.call.exception()
        if error is None:
            assert sent.call.result().outcome == self.ended[sent.step] and sent.body == self.bodies[sent.step]
        else:
            assert isinstance(error, (ZeroDivisionError, StaleStepError, ConflictingBodyError))


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
        play.target.tell_if("a")
