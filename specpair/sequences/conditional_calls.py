"""Calls that depend on the answer of a step that is under way.

Several may wait for one step, each for another answer. They hold no step: a call that waits changes nothing for others,
and a refused one has changed nothing at all, unless the device thread had begun it (see `Begun`). None gets an answer,
since the ordinary call follows. Most are refused, so none costs a task. Runs on the event loop, but for
`begin_on_device`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from specpair.errors import CapacityExhaustedError, SpecpairError

logger = logging.getLogger(__name__)

MAX_WAITING_PER_SEQUENCE = 64
"""Likely answers of one step are fewer: each costs the draft a row."""
MAX_WAITING_PER_CLIENT = 512
"""Half of the calls that a stream may have under way."""
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
    FULL = "full"
    """Too many calls, or bytes, were waiting, or the call was too large."""
    ENDED = "ended"
    """The sequence was closed."""


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
    start: "Callable[[Begun | None], object]"
    """Begins with the call as if it came now, or takes over what the device thread has begun. Raises what an ordinary
    call would."""
    end: Callable[[ConditionOutcome], None]
    """Is told what became of it."""
    begin_on_device: BeginOnDevice | None = None
    is_last_resort: bool = False
    """Whether it begins only on the device thread, and only if that goes on with no other one."""
    context: Context = field(default_factory=copy_context)

    def begin(self, begun: "Begun | None" = None) -> None:
        self.end(self._started(begun))

    def _started(self, begun: "Begun | None") -> ConditionOutcome:
        try:
            self.context.run(self.start, begun)
        except CapacityExhaustedError:
            return ConditionOutcome.FULL
        except SpecpairError:
            pass  # the ordinary call learns of it
        except Exception:
            logger.exception("a call that gets no answer failed")
        return ConditionOutcome.MET


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
            refuse_all([call for call in waiting if call is not begun.call], ConditionOutcome.NOT_MET)
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
        asyncio.get_running_loop().call_soon(refuse_all, refused, ConditionOutcome.NOT_MET)


def refuse_all(calls: Iterable[WaitingCall[Result]], outcome: ConditionOutcome) -> None:
    for call in tuple(calls):
        call.end(outcome)


class ConditionalCalls:
    """Limits the waiting calls, and counts what became of all."""

    def __init__(self) -> None:
        self.outcomes: Counter[ConditionOutcome] = Counter()
        self._counts: Counter[str] = Counter()
        """Waiting calls, by client."""
        self._bytes: Counter[str] = Counter()

    def count(self, outcome: ConditionOutcome) -> None:
        self.outcomes[outcome] += 1

    def enter(
        self, waiting: list[WaitingCall[Any]], call: WaitingCall[Any], client: str, size: int
    ) -> Callable[[], None]:
        """Adds the call to those `waiting` for the same step; returns what takes it away again. Raises
        CapacityExhaustedError at a limit, and counts that."""
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
                self.count(ConditionOutcome.FULL)
                raise CapacityExhaustedError(f"at most {limit} {words} may wait", limit=limit)
