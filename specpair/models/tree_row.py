"""A tree that a runner grows whole. Plain data."""

from dataclasses import dataclass

from specpair.options import SamplingOptions
from specpair.speculation.trees.ranked_growth import GrowthLimits


@dataclass(frozen=True, kw_only=True)
class TreeRow:
    """One tree of likely continuations to grow. Its rule is greedy or coupled, for which any tree is exact."""

    token: int
    """The last committed token, which is not fed yet."""
    limits: GrowthLimits
    """Of at least one node and level; with the usual children and frontier, and no least weight."""
    sampling: SamplingOptions
    """The likeliest tokens if it is greedy; otherwise those that the target is likely to choose with its noise."""
