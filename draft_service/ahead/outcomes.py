"""Outcomes of a step, and which of them to prepare for. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Outcome(NamedTuple):
    """What the target may make of a proposal."""

    accepted_count: int
    next_token_id: int


class Guess(NamedTuple):
    """An outcome, and how likely it seems."""

    outcome: Outcome
    probability: float


def best(guesses: Iterable[Guess], count: int, ends: Collection[int] = (), least: float = 0.0) -> list[Guess]:
    """The likeliest guesses, the likeliest first; none of a token that ends the output. Of those that are less likely
    than `least` only the likeliest, if there is no other."""
    lasting = [guess for guess in guesses if guess.outcome.next_token_id not in ends]
    chosen = sorted(lasting, key=lambda guess: -guess.probability)[:count]
    return [guess for guess in chosen if guess.probability >= least] or chosen[:1]
