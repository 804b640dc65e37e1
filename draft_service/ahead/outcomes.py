"""Which outcomes of a step to prepare for. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from specpair.speculation.outlook import Outlook


class Outcome(NamedTuple):
    """What the target may make of a proposal."""

    accepted_count: int
    next_token_id: int


class Guess(NamedTuple):
    """An outcome, and how likely it seems."""

    outcome: Outcome
    rank: int
    """Among the guesses after the same number of accepted tokens, from 0."""
    probability: float


def guesses_at(
    accepted_count: int, outlook: Outlook, rejected: int | None, chances: Sequence[float], excluded: frozenset[int]
) -> list[Guess]:
    """The guesses after some accepted tokens, the likeliest first.

    The token that was rejected there is never among them: the target's own token cannot be the same. `chances` are
    those of each rank, and `excluded` are tokens that nothing follows.
    """
    likely = [token for token in outlook.token_ids if token != rejected]
    return [
        Guess(Outcome(accepted_count, token), rank, chance)
        for rank, (token, chance) in enumerate(zip(likely, chances, strict=False))
        if token not in excluded
    ]


def best(guesses: Sequence[Guess], count: int) -> list[Guess]:
    """The likeliest guesses, the likeliest first."""
    return sorted(guesses, key=lambda guess: -guess.probability)[:count]
