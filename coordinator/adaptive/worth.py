"""What proposals are worth at the present load, for people who ask which number of tokens is right."""

from dataclasses import dataclass

from coordinator.adaptive.acceptance import Rates
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.survivals import survivals


@dataclass(frozen=True, kw_only=True)
class Worth:
    """By the present costs, with the drafter and the acceptance of the latest output."""

    output_count: int
    """Outputs that are generated now, at least 1."""
    break_even: float
    """The acceptance of a first token at which it is worth its time. Above 1 no proposal of one token can pay."""
    acceptance: float | None = None
    """The recent one of first tokens; None before any was judged."""
    best_length: int | None = None
    """Tokens per proposal, the same for all outputs, that give the most tokens per second; 0 if none pay. None with the
    acceptance."""
    gain: float | None = None
    """Expected tokens per second with that number, divided by those without proposals; None with the acceptance."""


def worth_of(times: RoundTimes, output_count: int, rates: Rates | None, longest: int) -> Worth:
    """The worth of proposals of at most `longest` tokens, for so many outputs with these rates."""
    plain = times.plain(output_count)
    break_even = times.of_all(output_count, 1) / plain - 1.0
    if rates is None:
        return Worth(output_count=output_count, break_even=break_even)
    best_length, gain = best_length_of(times, output_count, rates, longest)
    return Worth(
        output_count=output_count, break_even=break_even, acceptance=rates[0], best_length=best_length, gain=gain
    )


def best_length_of(times: RoundTimes, output_count: int, rates: Rates, longest: int) -> tuple[int, float]:
    """The length, the same for all outputs, that gives the most tokens per second, and its gain; 0 and 1 if none
    pays."""
    plain, tokens, best_length, gain = times.plain(output_count), 1.0, 0, 1.0
    for length, chance in enumerate(survivals(rates, longest), 1):
        tokens += chance
        own_gain = tokens * plain / times.of_all(output_count, length)
        if own_gain > gain:
            best_length, gain = length, own_gain
    return best_length, gain
