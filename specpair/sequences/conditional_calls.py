"""Calls that depend on the answer of a step that is under way.

Several may wait for one step, each for another answer. They hold no step: a call that waits changes nothing for others,
and a refused one has changed nothing at all, unless the device thread had begun it (see `Begun`). Most are refused, so
one whose caller needs no answer costs no task. Runs on the event loop, but for `begin_on_device`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from specpair.errors import CapacityExhaustedError, ConditionNotMetError, SequenceNotFoundError

MAX_WAITING_PER_SEQUENCE = 64
"""Likely answers of one step are fewer: each costs the draft a row."""
MAX_WAITING_PER_CLIENT = 512
"""Half of the calls that a stream may have under way: the other half is for calls that wait for nothing."""
MAX_WAITING_BYTES_PER_CLIENT = 64 * 1024 * 1024
"""Half of the bytes that a stream may hold."""

AnswerIn = TypeVar("AnswerIn", contravariant=True)
Result = TypeVar("Result")


class ConditionOutcome(StrEnum):
    """What became of a conditional call."""

    MET = "met"
    NOT_MET = "not_met"
    """The answer was another one, or the step failed."""
    LATE = "late"
    """The step was neither under way nor the last one."""
    REPEATED = "repeated"
    """The step of the call itself was taken already with the same body."""
    FULL = "full"
    """Too many calls, or bytes, were waiting."""
    ENDED = "ended"
    """The sequence was closed, or the caller went away."""


class Condition(Protocol[AnswerIn]):
    """The answer that a call depends on."""

    @property
    def step(self) -> int:
        """The step of that answer."""
        ...

    def is_met_by(self, answer: AnswerIn) -> bool: ...


BeginOnDevice: TypeAlias = Callable[[Any], tuple[Any, Callable[[], Awaitable[Any]]] | None]
"""Begins with a call on the device thread, given the work that has the answer it waits for. Returns the next work, and
what computes its answer; None to leave the call to the event loop."""


@dataclass(eq=False, slots=True)
class WaitingCall(Generic[Result]):
    """A call that waits for the step of its condition."""

    condition: Condition[Result]
    start: "Callable[[Begun | None], asyncio.Future[Result]]"
    """Begins with the call as if it came now, or takes over what the device thread has begun. Raises what an ordinary
    call would."""
    end: "Callable[[asyncio.Future[Result] | Exception], None]"
    """Gets the answer that is being computed, or the refusal."""
    begin_on_device: BeginOnDevice | None = None
    is_wanted: Callable[[], bool] = lambda: True
    """Whether its caller is still there."""
    is_last_resort: bool = False
    """Whether it begins only on the device thread, and only if that goes on with no other one."""
    context: Context = field(default_factory=copy_context)

    def begin(self, begun: "Begun | None" = None) -> None:
        if self.is_wanted():
            self.end(self._started(begun))

    def refuse(self, reason: Exception) -> None:
        if self.is_wanted():
            self.end(reason)

    def _started(self, begun: "Begun | None") -> "asyncio.Future[Result] | Exception":
        try:
            return self.context.run(self.start, begun)
        except Exception as error:
            return error


@dataclass(eq=False, slots=True)
class Begun:
    """What the device thread began for a waiting call."""

    call: WaitingCall[Any]
    work: Any
    """An engine's work, with its future."""
    finish: Callable[[], Awaitable[Any]]
    """Computes the answer of its step once the work is done."""
    is_taken: bool = False
    """Whether the step of the call was taken with it."""


def give_up(future: "asyncio.Future[None]") -> None:
    """Ends a work whose answer nobody needs any more."""
    if not future.cancel() and not future.cancelled():
        future.exception()  # else it counts as never retrieved


def begin_first(calls: Iterable[WaitingCall[Result]], answer: Result, begun: Begun | None = None) -> None:
    """Begins with the calls that this answer meets, with the one that was `begun` first. The others, which may be many,
    are refused once the new work is on its way. If what was begun is not taken its tokens may be in a pass, so none of
    the others begins, nor if it is a last resort: then they came too late."""
    waiting = tuple(calls)
    if begun is not None:
        begun.call.begin(begun)
        if begun.call.is_last_resort or not begun.is_taken:
            refuse_all([call for call in waiting if call is not begun.call], ConditionNotMetError)
            return
    refused: list[WaitingCall[Result]] = []
    for call in waiting:
        if begun is not None and call is begun.call:
            continue
        if call.condition.is_met_by(answer) and not call.is_last_resort:
            call.begin()
        else:
            refused.append(call)
    if refused:
        asyncio.get_running_loop().call_soon(refuse_all, refused, ConditionNotMetError)


def refuse_all(calls: Iterable[WaitingCall[Result]], reason: Callable[[], Exception]) -> None:
    """Refuses each call with an error of its own."""
    for call in tuple(calls):
        call.refuse(reason())


class ConditionalCalls:
    """Limits the waiting calls, and counts what became of all."""

    def __init__(self) -> None:
        self.outcomes: Counter[ConditionOutcome] = Counter()
        self._counts: Counter[str] = Counter()
        """Waiting calls, by client."""
        self._bytes: Counter[str] = Counter()

    def count(self, ended: object) -> None:
        """Counts a call that was decided on: begun, or refused with an error."""
        self.outcomes[_OUTCOMES.get(type(ended), ConditionOutcome.MET)] += 1

    @contextmanager
    def waiting(
        self, waiting: list[WaitingCall[Any]], call: WaitingCall[Any], client: str, size: int
    ) -> Iterator[None]:
        """Has the call among those `waiting` for the same step. Raises CapacityExhaustedError at a limit."""
        leave = self.enter(waiting, call, client, size)
        try:
            yield
        finally:
            leave()

    def enter(
        self, waiting: list[WaitingCall[Any]], call: WaitingCall[Any], client: str, size: int
    ) -> Callable[[], None]:
        """Adds the call to those `waiting` for the same step; returns what takes it away again. Raises
        CapacityExhaustedError at a limit."""
        self._check_room(len(waiting), client, size)
        self._counts[client] += 1
        self._bytes[client] += size
        waiting.append(call)

        def leave() -> None:
            if call in waiting:
                waiting.remove(call)
            self._counts[client] -= 1
            self._bytes[client] -= size
            if not self._counts[client]:
                del self._counts[client], self._bytes[client]

        return leave

    def _check_room(self, count: int, client: str, size: int) -> None:
        for amount, limit, words in (
            (count + 1, MAX_WAITING_PER_SEQUENCE, "conditional calls of a sequence"),
            (self._counts[client] + 1, MAX_WAITING_PER_CLIENT, "conditional calls of a client"),
            (self._bytes[client] + size, MAX_WAITING_BYTES_PER_CLIENT, "bytes of conditional calls of a client"),
        ):
            if amount > limit:
                raise CapacityExhaustedError(f"at most {limit} {words} may wait", limit=limit)


_OUTCOMES: dict[type[object], ConditionOutcome] = {
    ConditionNotMetError: ConditionOutcome.NOT_MET,
    CapacityExhaustedError: ConditionOutcome.FULL,
    SequenceNotFoundError: ConditionOutcome.ENDED,
    asyncio.CancelledError: ConditionOutcome.ENDED,
}
"""What an error before the call began means; without an error it began."""
