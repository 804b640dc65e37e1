"""The number of proposed tokens that gives most tokens per second."""

from typing import NamedTuple

from coordinator.adaptive.acceptance_estimate import Rates
from coordinator.adaptive.round_costs import RoundTimes


class BlockLength(NamedTuple):
    """A number of proposed tokens and what it is worth."""

    length: int
    rate: float
    """Tokens per microsecond: the output's own, less what the others lose by it."""


def plain_rate(times: RoundTimes) -> float:
    """The rate of rounds without proposals."""
    return 1.0 / times.plain


def block_time(length: int, times: RoundTimes) -> float:
    """Microseconds of a round with proposals: never less than of one without, whatever estimates say."""
    return max(times.base + times.per_token * length, times.plain)


def expected_tokens(length: int, rates: Rates) -> float:
    """Tokens of a round: the accepted ones and one of the target's own (Leviathan et al. 2023, equation 1, with a rate
    for each position)."""
    tokens = reached = 1.0
    for i in range(length):
        reached *= rates[min(i, 2)]
        tokens += reached
    return tokens


def block_rate(length: int, rates: Rates, times: RoundTimes, others_rate: float) -> float:
    """The worth of rounds with `length` proposed tokens, at least 1.

    It delays the others, who would commit `others_rate` tokens per microsecond.
    """
    return (expected_tokens(length, rates) - others_loss(length, times, others_rate)) / block_time(length, times)


def others_loss(length: int, times: RoundTimes, others_rate: float) -> float:
    """Tokens that the others would have committed in the time by which they are delayed."""
    return others_rate * (times.others_base + times.others_per_token * length)


def best_block(rates: Rates, times: RoundTimes, others_rate: float, longest: int) -> BlockLength:
    """The best number from 1 to `longest`.

    Each token adds less than the one before it and costs the same, so once one lowers the rate all behind it do.
    """
    price, per_token = others_rate * times.others_per_token, times.per_token
    time, worth, reached = times.base, 1.0 - others_rate * times.others_base, 1.0
    best = BlockLength(0, float("-inf"))
    for i in range(longest):
        reached *= rates[i if i < 2 else 2]
        worth += reached - price
        time += per_token
        rate = worth / max(time, times.plain)
        if rate <= best.rate:
            break
        best = BlockLength(i + 1, rate)
    return best
