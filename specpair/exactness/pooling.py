"""Sorts the outcomes of two samples into bins that are large enough for a test."""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Outcome: TypeAlias = tuple[int, ...]
"""The first tokens of an output."""

MIN_EXPECTED = 5
"""Least number of outcomes that a bin must expect of each sample: with fewer, the chi-square distribution does not
hold."""

MAX_BINS = 32
"""More bins spread the same evidence over more degrees of freedom."""


class Bin(NamedTuple):
    """Number of outcomes of each sample in one bin."""

    first: int
    second: int


def pool(first: Mapping[Outcome, int], second: Mapping[Outcome, int]) -> list[Bin]:
    """Makes bins for the counts of two samples, by the total counts of both.

    If both samples have the same distribution, the totals are independent of which sample an outcome came from, so bins
    chosen by totals leave the test valid. Outcomes are sorted by their last token, then the one before it: rare ones
    are pooled with those that end alike, and each length of output shows its own last position best.
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
