"""The number of proposed tokens that gives most tokens per second."""

from typing import NamedTuple

from coordinator.adaptive.acceptance import Rates
from coordinator.adaptive.round_costs import RoundTimes


class BlockLength(NamedTuple):
    """A number of proposed tokens and what it is worth."""

    length: int
    rate: float
    """Tokens per unit of time: the output's own, less what the others lose by it."""


def block_time(length: int, times: RoundTimes) -> float:
    """Of a round with proposals."""
    return times.base + (times.step + times.row) * length


def expected_tokens(length: int, rates: Rates) -> float:
    """Tokens of a round: the accepted ones and one of the target's own (Leviathan et al. 2023, equation 1, with a rate
    for each position)."""
    tokens = reached = 1.0
    for i in range(length):
        reached *= rates[min(i, len(rates) - 1)]
        tokens += reached
    return tokens


def block_rate(length: int, rates: Rates, times: RoundTimes, others_rate: float) -> float:
    """The worth of rounds with `length` proposed tokens, at least 1.

    Their rows delay the others, who would commit `others_rate` tokens per unit of time.
    """
    worth = expected_tokens(length, rates) - others_loss(length, times, others_rate)
    return worth / block_time(length, times)


def others_loss(length: int, times: RoundTimes, others_rate: float) -> float:
    """Tokens that the others would have committed in the time by which the rows delay them."""
    return others_rate * times.row * length


def best_block(rates: Rates, times: RoundTimes, others_rate: float, longest: int) -> BlockLength:
    """The best number from 1 to `longest`.

    Each token adds less than the one before it and costs the same, so once one lowers the rate all after it do.
    """
    best = BlockLength(1, block_rate(1, rates, times, others_rate))
    for length in range(2, longest + 1):
        rate = block_rate(length, rates, times, others_rate)
        if rate <= best.rate:
            break
        best = BlockLength(length, rate)
    return best
