"""Outcomes of two samples sorted into bins that hold enough of them for a test."""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Outcome: TypeAlias = tuple[int, ...]
"""The first tokens of an output."""

MIN_EXPECTED = 5
"""Outcomes that every bin expects of each sample: below, the chi-square distribution does not hold."""

MAX_BINS = 32
"""More bins spread the same evidence over more degrees of freedom."""


class Bin(NamedTuple):
    """How often the outcomes of a bin came."""

    first: int
    second: int


def pool(first: Mapping[Outcome, int], second: Mapping[Outcome, int]) -> list[Bin]:
    """Bins for the counts of two samples, by the counts of both together.

    If both samples have one distribution, which of them an outcome came from tells nothing about that total, so bins
    that are cut by it leave the test valid. Outcomes stand in the order of their last token, then the one before: rare
    ones are pooled with those that end alike, and each length of output shows its own last position best.
    """
    totals = {outcome: first.get(outcome, 0) + second.get(outcome, 0) for outcome in {*first, *second}}
    drawn, fewer = sum(totals.values()), min(sum(first.values()), sum(second.values()))
    least = max(math.ceil(MIN_EXPECTED * drawn / fewer), math.ceil(drawn / MAX_BINS))
    bins, current = [], Bin(0, 0)
    for outcome in sorted(totals, key=lambda tokens: tuple(reversed(tokens))):
        current = _joined(current, Bin(first.get(outcome, 0), second.get(outcome, 0)))
        if sum(current) >= least:
            bins.append(current)
            current = Bin(0, 0)
    if bins and sum(current):
        current = _joined(bins.pop(), current)
    return [*bins, current] if sum(current) else bins


def _joined(one: Bin, other: Bin) -> Bin:
    return Bin(one.first + other.first, one.second + other.second)
