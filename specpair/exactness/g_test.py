"""Tests whether two samples come from one distribution: the likelihood-ratio test of a table with 2 rows."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import chi2

from specpair.exactness.pooling import Bin


class GTest(NamedTuple):
    """The result of a test."""

    g: float
    """The statistic; chi-square with `df` degrees of freedom if both samples have the same distribution."""
    df: int
    """Number of bins minus 1; 0 for a single bin, which proves nothing."""
    p_value: float


def g_test(bins: Sequence[Bin]) -> GTest:
    """G = 2 sum O ln(O / E) over both samples and all bins, divided by Williams' correction.

    Without the correction small bins make G too large (Williams, "Improved likelihood ratio tests for complete
    contingency tables", 1976), by a few per cent, which would multiply false alarms at the levels used here.
    """
    df = len(bins) - 1
    if df < 1:
        return GTest(0.0, 0, 1.0)
    g = log_likelihood_ratio(bins) / williams_correction(bins)
    return GTest(g, df, float(chi2.sf(g, df)))


def log_likelihood_ratio(bins: Sequence[Bin]) -> float:
    """G without correction."""
    drawn = [sum(column) for column in zip(*bins, strict=True)]
    total = sum(drawn)
    terms = (
        observed * math.log(observed * total / (sum(bin_) * size))
        for bin_ in bins
        for observed, size in zip(bin_, drawn, strict=True)
        if observed
    )
    return max(0.0, 2 * math.fsum(terms))


def williams_correction(bins: Sequence[Bin]) -> float:
    """The factor by which the mean of G exceeds its degrees of freedom."""
    drawn = [sum(column) for column in zip(*bins, strict=True)]
    total = sum(drawn)
    samples = total * sum(1 / size for size in drawn) - 1
    columns = total * sum(1 / sum(bin_) for bin_ in bins) - 1
    return 1 + samples * columns / (6 * total * (len(bins) - 1))
