"""A store whose steps end when a test says so, and calls of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.cache_owner import NoCaches
from specpair.sequences.conditional_calls import Begun
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequel import Sequel
from specpair.sequences.sequence_limits import SequenceLimits
from specpair.sequences.sequence_store import SequenceStore

OPTIONS = SequenceOptions(sampling=SamplingOptions(seed=1))


@dataclass(frozen=True)
class Reply:
    outcome: str
    byte_count: int = 10


@dataclass(frozen=True)
class Expected:
    step: int
    outcome: str

    def is_met_by(self, answer: Reply) -> bool:
        return answer.outcome == self.outcome


class Target:
    """A store whose steps end when the test says so."""

    def __init__(self) -> None:
        self.client = "one"
        limits = SequenceLimits(max_model_len=100, max_num_seqs=20, vocab_size=10)
        self.store: SequenceStore[Reply] = SequenceStore(NoCaches(), limits, lambda: self.client)
        self.open("s")
        self.started: list[int] = []
        """Steps whose computation began."""
        self.ends: dict[int, asyncio.Future[str]] = {}
        self.begun: list[Begun] = []
        """What the device thread went on to, in order."""

    def open(self, name: str) -> None:
        self.store.open(name, [1, 2, 3], 3, OPTIONS)

    @property
    def held(self) -> HeldSequence[Reply]:
        return self.store.get("s")

    def state(self) -> Any:
        """What a refused call must leave as it was."""
        held = self.held
        answers = self.store._answers
        return held.last_step, held.last_body, held.answer, held.length, list(held.cached.tokens), dict(answers._sizes)

    def outcomes(self) -> dict[str, int]:
        return {outcome.value: count for outcome, count in self.store.conditional_calls.outcomes.items()}

    async def compute(self, step: int) -> Reply:
        self.started.append(step)
        return Reply(await self.end_of(step))

    def end_of(self, step: int) -> "asyncio.Future[str]":
        return self.ends.setdefault(step, asyncio.get_running_loop().create_future())

    def end(self, step: int, outcome: str, *, goes_on: bool = False) -> None:
        """Ends a step; the device thread may go on by itself to the call that waits for this answer."""
        held = self.held
        call = held.call_after(step, Reply(outcome)) if goes_on else None
        if call is not None and call.begin_on_device is not None:
            found = call.begin_on_device(None)
            assert found is not None
            held.begun = Begun(call, *found)
            self.begun.append(held.begun)
        self.end_of(step).set_result(outcome)

    def begin_on_device(self, step: int, before: None) -> tuple[Any, Callable[[], Awaitable[Reply]]]:
        return SimpleNamespace(future=asyncio.get_running_loop().create_future()), lambda: self.compute(step)

    def call(
        self, step: int, body: bytes = b"body", name: str = "s", stop: str | None = None, following: bytes = b"body"
    ) -> "asyncio.Task[Reply]":
        """An ordinary call. With a `stop`, any other answer is followed by the next step at once."""
        sequel = None if stop is None else self.sequel(step, stop, name, following)
        return asyncio.create_task(self.store.step(name, step, body, lambda held: self.compute(step), sequel))

    def sequel(self, step: int, stop: str, name: str = "s", following: bytes = b"body") -> Sequel[Reply]:
        """What follows a step, unless its answer is `stop`."""

        def begin(answer: Reply, held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
            return lambda: self.compute(step + 1)

        return Sequel(
            sequence_id=name,
            step=step,
            following_step=lambda answer: step + 1,
            goes_on=lambda answer: answer.outcome != stop,
            body=lambda answer: following,
            begin=begin,
            begin_on_device=partial(self.begin_on_device, step + 1),
        )

    def sequels(self) -> dict[str, int]:
        return {outcome.value: count for outcome, count in self.store.sequel_outcomes.items()}

    def tell_if(
        self, expected: str, step: int = 1, body: bytes = b"body", after: int | None = None, size: int = 1, name="s"
    ) -> None:
        """A call of `step` in case the step before it, or the one `after` which it comes, ends as `expected`."""

        def begin(held: HeldSequence[Reply]) -> Callable[[], Awaitable[Reply]]:
            return lambda: self.compute(step)

        condition = Expected(step - 1 if after is None else after, expected)
        on_device = partial(self.begin_on_device, step)
        self.store.step_unanswered(condition, name, step, lambda: body, begin, size, on_device)

    async def answered(self, step: int, outcome: str) -> None:
        """Takes a step to its end."""
        call = self.call(step)
        self.end(step, outcome)
        await call


async def turn() -> None:
    """Lets everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def refusal(call: "asyncio.Task[Reply]") -> type[BaseException] | None:
    """The error of a call; None if it still waits or has an answer."""
    await turn()
    if call.cancelled():
        return asyncio.CancelledError
    error = call.exception() if call.done() else None
    return None if error is None else type(error)
