"""The result of one turn of one case."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from bench.case import Case


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts and times of speculation, summed over the outputs of a turn. Times are in seconds."""

    rounds: int = 0
    """Target passes after the one that gave the first token."""
    drafted: int = 0
    """Proposed tokens."""
    accepted: int = 0
    drafted_per_position: tuple[int, ...] = ()
    """Rounds that proposed a token at each position."""
    accepted_per_position: tuple[int, ...] = ()
    fallbacks: int = 0
    """Rounds without proposals because the draft did not answer."""
    ahead_hits: int = 0
    """Rounds whose proposal was prepared while the round before was verified."""
    ahead_late: int = 0
    """Rounds whose proposal was still being made when the verdict came."""
    ahead_misses: int = 0
    """Rounds for which the draft had prepared other proposals."""
    ahead_plain: int = 0
    """Rounds without a proposal, since none was prepared in time and the target did not wait."""
    draft_seconds: float = 0.0
    """In the draft's forward passes and sampling."""
    verify_seconds: float = 0.0
    """In the target's forward passes and verification."""
    network_seconds: float = 0.0
    """In calls to both services and in their queues."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            rounds=self.rounds + other.rounds,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            drafted_per_position=add_places(self.drafted_per_position, other.drafted_per_position),
            accepted_per_position=add_places(self.accepted_per_position, other.accepted_per_position),
            fallbacks=self.fallbacks + other.fallbacks,
            ahead_hits=self.ahead_hits + other.ahead_hits,
            ahead_late=self.ahead_late + other.ahead_late,
            ahead_misses=self.ahead_misses + other.ahead_misses,
            ahead_plain=self.ahead_plain + other.ahead_plain,
            draft_seconds=self.draft_seconds + other.draft_seconds,
            verify_seconds=self.verify_seconds + other.verify_seconds,
            network_seconds=self.network_seconds + other.network_seconds,
        )

    @classmethod
    def total(cls, parts: Iterable["Counts"]) -> "Counts":
        return sum(parts, start=cls())


@dataclass(frozen=True, kw_only=True)
class Output:
    """The outputs of a turn, with their times in seconds."""

    token_ids: list[list[int]]
    """For each prompt."""
    first_token_seconds: float
    """Time from the start to the first tokens of any output."""
    tokens: int
    """Tokens after the first ones, over all outputs."""
    seconds: float
    """Time from the first tokens of any output to the end of the last output."""
    output_seconds: float
    """The same for each output separately, summed."""
    round_seconds: list[float]
    """Times from each message of an output to its next, over all outputs."""
    counts: Counts

    @property
    def tokens_per_second(self) -> float:
        """Speed of all outputs together after the first tokens, without the pass over the prompt."""
        return self.tokens / self.seconds


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A place in the order of a run."""

    case: Case
    prompt: int
    """Which prompt, or which group of prompts if they are generated together."""
    repetition: int

    @property
    def seed(self) -> int:
        """Seed of the first output; the same for every case, and different for all prompts of a turn."""
        return 1_000_000 * self.repetition + 1000 * self.prompt


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A turn and its output."""

    turn: Turn
    output: Output


def add_places(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The sum by position; the shorter one is padded with zeros."""
    return tuple(a + b for a, b in zip_longest(left, right, fillvalue=0))
