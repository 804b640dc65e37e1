"""One output of the simulated pair, how its blocks are chosen, and its rounds. Times are in microseconds."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bench.simulated_machine import Text
from coordinator.adaptive import Decision, RoundOutcome


class SimulatedRound(NamedTuple):
    """A `RoundOutcome`. Times are in microseconds."""

    asked: int
    drafted_count: int
    accepted_count: int
    elapsed: float
    period: float
    draft_elapsed: float
    draft_compute: float
    verify_compute: float
    batch_token_count: int
    is_usual: bool = True
    is_passed_over: bool = False

    @property
    def depth(self) -> int:
        return self.drafted_count


class Policy(Protocol):
    """Chooses the length of an output's blocks."""

    def opens_early(self, longest: int) -> bool: ...
    def decide(self, longest: int, *, is_ready: bool) -> Decision: ...
    def add(self, outcome: RoundOutcome) -> None: ...
    def leave(self) -> None: ...


class FixedLength:
    """Always chooses the same length."""

    def __init__(self, length: int):
        self._length = length

    def opens_early(self, longest: int) -> bool:
        return min(self._length, longest) > 0

    def decide(self, longest: int, *, is_ready: bool) -> Decision:
        length = min(self._length, longest)
        return Decision(length if is_ready else 0, opens_draft=length > 0 and not is_ready)

    def add(self, outcome: RoundOutcome) -> None:
        """Learns nothing."""

    def leave(self) -> None:
        """Holds nothing."""


@dataclass(eq=False)
class Output:
    """One output and where it is in its round."""

    text: Text
    policy: Policy
    token_count: int = 0
    lengths: list[int] = field(default_factory=list)
    """Tokens asked for, round by round."""
    round_start: float = 0.0
    asked: int = 0
    wanted: int = 0
    """Tokens that the draft will propose: fewer than asked if it is not confident."""
    drafted: int = 0
    chances: list[float] = field(default_factory=list)
    """For each proposed token, the chance that it is accepted if all before it are."""
    fed: int | None = None
    """Tokens that the draft has read; None before it has read the prompt."""
    is_opening: bool = False
    is_usual: bool = True
    """Whether its last proposal opened no sequence and had few tokens to catch up."""
    draft_start: float = 0.0
    draft_elapsed: float = 0.0
    draft_compute_start: float = 0.0
    draft_compute: float = 0.0
    answered_at: float = 0.0
    """When the target last answered it, in seconds, as Gathering has times."""
    absence: float | None = None
    """What Gathering knows of the time from an answer to the next call."""
    is_followed: bool = False
    """Whether its next call was there when it was answered; never here."""
    shadowed: "Output | None" = None
    """If this is only a shadow proposal, the output that it is for."""


@dataclass(eq=False)
class Call:
    """A verification that waits for a pass: what Gathering reads of a work. Times are in seconds."""

    sequence: Output
    submitted_at: float
    started_at: float = 0.0
    is_background: bool = False
    is_followed: bool = False
