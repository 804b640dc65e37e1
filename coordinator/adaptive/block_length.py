"""Finds the number of proposed tokens that gives the most tokens per second."""

from typing import NamedTuple

from coordinator.adaptive.acceptance import Rates
from coordinator.adaptive.round_costs import RoundTimes


class BlockLength(NamedTuple):
    """A number of proposed tokens and the rate it gives."""

    length: int
    rate: float
    """Tokens per unit of time: the output's own, less what other outputs lose."""


def block_time(length: int, times: RoundTimes) -> float:
    """Time of a round with `length` proposed tokens."""
    return times.base + (times.step + times.row) * length


def expected_tokens(length: int, rates: Rates) -> float:
    """Expected tokens of a round: the accepted ones and the next token (Leviathan et al. 2023, equation 1, with a rate
    for each position)."""
    tokens = reached = 1.0
    for i in range(length):
        reached *= rates[min(i, len(rates) - 1)]
        tokens += reached
    return tokens


def block_rate(length: int, rates: Rates, times: RoundTimes, others_rate: float) -> float:
    """Tokens per unit of time of rounds with `length` (at least 1) proposed tokens.

    Their rows delay the other outputs, which commit `others_rate` tokens per unit of time.
    """
    worth = expected_tokens(length, rates) - others_loss(length, times, others_rate)
    return worth / block_time(length, times)


def others_loss(length: int, times: RoundTimes, others_rate: float) -> float:
    """Tokens that the other outputs would have committed in the time by which these rows delay them."""
    return others_rate * times.row * length


def best_block(rates: Rates, times: RoundTimes, others_rate: float, longest: int) -> BlockLength:
    """The best number from 1 to `longest`.

    Each further token adds less and costs the same, so once one lowers the rate, all later ones do.
    """
    best = BlockLength(1, block_rate(1, rates, times, others_rate))
    for length in range(2, longest + 1):
        rate = block_rate(length, rates, times, others_rate)
        if rate <= best.rate:
            break
        best = BlockLength(length, rate)
    return best
