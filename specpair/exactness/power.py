"""The smallest difference that a test would have detected."""

import math

from scipy.optimize import root_scalar
from scipy.stats import chi2, ncx2

POWER = 0.9
"""Probability with which a difference should be detected."""


def detectable_distance(first_size: int, second_size: int, df: int, level: float, power: float = POWER) -> float | None:
    """The smallest total variation distance that a G-test at `level` detects with probability `power`.

    If the samples of n and m outcomes come from p and q, G is distributed as noncentral chi-square with noncentrality
    n m / (n + m) * sum (p - q)^2 / r, where r is the mean of p and q, weighted by n and m. By Cauchy and Schwarz the
    sum is at least (sum |p - q|)^2 = (2 TV)^2, so TV = sqrt(noncentrality (n + m) / (4 n m)) suffices, however the
    difference is spread over the bins; a difference concentrated in rare bins is detected much earlier.
    The distance is that of the pooled distributions: differences within a bin do not count.
    None if the test could not detect any.
    """
    if df < 1:
        return None
    noncentrality = needed_noncentrality(df, level, power)
    distance = math.sqrt(noncentrality * (first_size + second_size) / (4 * first_size * second_size))
    return distance if distance < 1.0 else None


def needed_noncentrality(df: int, level: float, power: float) -> float:
    """The noncentrality at which chi-square exceeds its critical value with probability `power`."""
    critical = chi2.isf(level, df)
    highest = 1.0
    while ncx2.sf(critical, df, highest) < power:
        highest *= 2
    return root_scalar(lambda value: ncx2.sf(critical, df, value) - power, bracket=(0.0, highest)).root
