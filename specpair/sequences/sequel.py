"""The step that follows another one whatever that one's answer is, unless it ends the output.

Its call is known before the answer, so the process goes on to it by itself: the way of the answer to the caller, and of
the next call back, passes beside the work. Engines in one process do the same when they schedule a pass before the
results of the one before are read ("overlap scheduling", "asynchronous scheduling").
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic

from specpair.sequences.conditional_calls import BeginOnDevice
from specpair.sequences.held_sequence import Answer, HeldSequence


class SequelOutcome(StrEnum):
    """What became of a step to which the process went on by itself."""

    USED = "used"
    """Its call came."""
    DROPPED = "dropped"
    """The sequence was closed first, the step failed, or another one was taken instead."""


@dataclass(frozen=True, kw_only=True)
class Sequel(Generic[Answer]):
    """The next step, as far as it is known. A condition that any answer meets after which the output goes on."""

    sequence_id: str
    step: int
    """The step before it."""
    following_step: Callable[[Answer], int]
    """Its own, after this answer."""
    goes_on: Callable[[Any], bool]
    """Whether the output goes on after an answer. The device thread asks it, too, of the work that has the answer."""
    body: Callable[[Answer], Any]
    """What identifies its call, after this answer."""
    begin: Callable[[Answer, HeldSequence[Answer]], Callable[[], Awaitable[Answer]]]
    """Does all that can be done without waiting, and returns what computes the rest."""
    begin_on_device: BeginOnDevice
    is_last_resort: bool = False
    """Whether it follows only if no call waits for the answer, and the device thread then goes on by itself."""

    def is_met_by(self, answer: Any) -> bool:
        return self.goes_on(answer)
