"""The chances of the tokens of a block, known before any of them is drawn."""

from collections.abc import Sequence

from coordinator.adaptive.acceptance import Rates

LEAST = 0.01
"""Tokens after the first with a smaller chance are never proposed."""


def survivals(rates: Rates, longest: int) -> list[float]:
    """For each of at most `longest` tokens, the chance that it is accepted with all before it (Leviathan et al. 2023,
    equation 1, with a rate for each position)."""
    chances: list[float] = []
    chance = 1.0
    for position in range(longest):
        chance *= rates[min(position, len(rates) - 1)]
        if chance < LEAST and chances:
            break
        chances.append(chance)
    return chances


def count_above(chances: Sequence[float], least: float) -> int:
    """How many of the falling chances are at least `least`."""
    for count, chance in enumerate(chances):
        if chance < least:
            return count
    return len(chances)
