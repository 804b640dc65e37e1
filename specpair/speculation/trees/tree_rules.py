"""The two rules for trees that were drawn: which path is accepted, and what is left of the target's row at its end.

The token rule of a tree is multi-step speculative sampling (SpecInfer, Miao et al. 2024; step by step in Stratos,
"Speculative Decoding", section 2.1): from the root on, siblings are judged one after the other against what the
rejected ones have left of the target's distribution, and the first accepted one is followed.

The block rule of a tree is traversal verification (Weng et al. 2025, "Traversal Verification for Speculative Tree
Decoding"): from the leaves to the root, a node is judged only when everything below it was rejected, by the probability
of its whole path. Both are what the chain's rules are if the tree is a chain; docs/exactness.md has the proofs.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from specpair.speculation.trees.siblings import Residual, Siblings
from specpair.speculation.trees.token_tree import ROOT

Decide: TypeAlias = Callable[[int, float], bool]
"""Decides whether a node is accepted, with a probability: in service, whether its uniform is below it."""


class Offered(NamedTuple):
    """What one sequence's draft proposed and its target says of it."""

    siblings: Mapping[int, Siblings]
    """By parent."""
    target: Mapping[int, np.ndarray]
    """By parent: [U] float64, the target's probabilities of the siblings' tokens."""


class End(NamedTuple):
    """The end of the accepted path."""

    node: int
    """Its last node, or ROOT."""
    residual: Residual | None
    """What is left of the target's row there; None if nothing was drawn below, and all of it is left."""


def multi_step(offered: Offered, decide: Decide) -> End:
    """The token rule."""
    node = ROOT
    while node in offered.siblings:
        residual = Residual.before_draws(offered.target[node], 1.0)
        for draw in offered.siblings[node].draws:
            if decide(draw.node, residual.threshold(draw)):
                node = draw.node
                break
            residual = residual.without(draw)
        else:
            return End(node, residual)
    return End(node, None)


def traversal(offered: Offered, decide: Decide) -> End:
    """The block rule."""
    end = _accepted_below(ROOT, 1.0, offered, decide)
    assert end is not None, "the root is always accepted"
    return end


def _accepted_below(node: int, acceptance: float, offered: Offered, decide: Decide) -> End | None:
    """The end of the path if it is `node` or below; None if all of these are rejected.

    `acceptance` is the probability that it is not None, over all that is drawn below and decided here.
    """
    if acceptance == 0.0:
        return None
    residual = None
    if node in offered.siblings:
        residual = Residual.before_draws(offered.target[node], acceptance)
        for draw in offered.siblings[node].draws:
            if found := _accepted_below(draw.node, residual.threshold(draw), offered, decide):
                return found
            residual = residual.without(draw)
        acceptance = residual.acceptance
    return End(node, residual) if node == ROOT or decide(node, acceptance) else None
