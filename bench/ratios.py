"""Figures measured in turns, paired, with an interval that shows the noise."""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median

RESAMPLES = 2000
COVERAGE = 0.95

Pairs = Mapping[tuple[int, int], float]
"""A figure for each (prompt, repetition)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(numerators: Pairs, denominators: Pairs, seed: int = 0) -> Estimate:
    """The ratio of the figures: those of the same prompt and repetition are divided by each other.

    The result is the geometric mean over the prompts of the medians over the repetitions. All figures are positive.
    """
    logs = {key: log(value) - log(denominators[key]) for key, value in matched(numerators, denominators)}
    found = bootstrap(logs, seed)
    return Estimate(value=exp(found.value), low=exp(found.low), high=exp(found.high))


def difference(minuends: Pairs, subtrahends: Pairs, seed: int = 0) -> Estimate:
    """The difference of the figures: median over the repetitions, mean over the prompts."""
    return bootstrap({key: value - subtrahends[key] for key, value in matched(minuends, subtrahends)}, seed)


def matched(left: Pairs, right: Pairs) -> list[tuple[tuple[int, int], float]]:
    """The entries of the left side; the right side has the same keys."""
    assert left.keys() == right.keys(), "both sides are measured in the same turns"
    return list(left.items())


def bootstrap(pairs: Pairs, seed: int = 0, centre: Callable[[list[float]], float] = median) -> Estimate:
    """The mean over the prompts of the `centre` over each prompt's repetitions.

    The interval is a percentile bootstrap (Efron) in two steps: prompts are drawn with replacement, then repetitions of
    each.
    """
    by_prompt: dict[int, list[float]] = defaultdict(list)
    for (prompt, _), value in sorted(pairs.items()):
        by_prompt[prompt].append(value)
    groups = list(by_prompt.values())
    generator = random.Random(seed)
    means = sorted(fmean(map(centre, resample(groups, generator))) for _ in range(RESAMPLES))
    tail = round((1 - COVERAGE) / 2 * RESAMPLES)
    return Estimate(value=fmean(map(centre, groups)), low=means[tail], high=means[RESAMPLES - 1 - tail])


def resample(groups: list[list[float]], generator: random.Random) -> list[list[float]]:
    """The same number of groups and of values in each, drawn with replacement."""
    return [generator.choices(group, k=len(group)) for group in generator.choices(groups, k=len(groups))]
