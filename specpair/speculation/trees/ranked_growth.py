"""Grows a tree of the likeliest continuations, for greedy targets and the coupled rule, which are exact for any tree.

A node's weight is the estimated probability that the target's own text passes through it: the product of the chances on
its path. The sum of the weights is the expected number of accepted tokens, so the best tree of N nodes has the N
heaviest. They are found level by level, with one pass of the draft for each (Li et al. 2024, "EAGLE-2: Faster Inference
of Language Models with Dynamic Draft Trees"). Candidates are the top of log q + g under the coupled rule, with the
noise g of their position, and the top of q for greedy targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specpair.speculation.trees.token_tree import ROOT, TokenTree


@dataclass(frozen=True, kw_only=True)
class GrowthLimits:
    """How large a tree may become."""

    max_nodes: int
    """Rows of the target's pass, without the one of the last committed token."""
    max_depth: int
    """Passes of the draft."""
    max_children: int = 8
    """Children of one node."""
    max_frontier: int = 8
    """Rows of one pass of the draft."""
    min_weight: float = 0.0
    """A node that is less likely to be accepted is left out."""


def most_asked(depth: int) -> int:
    """Nodes whose continuations are asked for in a tree of so many levels: those of the last level are not."""
    return 1 + (depth - 1) * GrowthLimits.max_frontier


class Candidate(NamedTuple):
    """A token that may follow a node."""

    token: int
    chance: float
    """Estimated probability that the target goes on with it if it comes to the node; in [0, 1]."""


class RankedGrowth:
    """A tree that grows by one level at a time: evaluate the `frontier`, and `extend` it, until there is none."""

    def __init__(self, limits: GrowthLimits):
        self._limits = limits
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._weights: list[float] = []
        self._depth = 0
        self.frontier: list[int] = [ROOT] if limits.max_nodes and limits.max_depth else []
        """The nodes whose continuations are asked for, by their numbers here; the tree may number them otherwise."""

    @property
    def depth(self) -> int:
        """Levels so far."""
        return self._depth

    def token(self, node: int) -> int:
        return self._tokens[node]

    def parent(self, node: int) -> int:
        return self._parents[node]

    def extend(self, candidates: Sequence[Sequence[Candidate]]) -> None:
        """Adds the candidates of each node of the frontier, which are different tokens, the best first."""
        first = len(self._tokens)
        for node, own in zip(self.frontier, candidates, strict=True):
            weight = 1.0 if node == ROOT else self._weights[node]
            for token, chance in own[: self._limits.max_children]:
                self._tokens.append(token)
                self._parents.append(node)
                self._weights.append(weight * chance)
        self._depth += 1
        new = [node for node in self._heaviest() if node >= first]
        self.frontier = new[: self._limits.max_frontier] if self._depth < self._limits.max_depth else []

    def end(self) -> None:
        """Grows no further: the tree is what it has."""
        self.frontier = []

    def tree(self) -> TokenTree:
        """The heaviest nodes of all that were added, in the order in which they were added."""
        kept = sorted(self._heaviest())
        places = {ROOT: ROOT} | {node: place for place, node in enumerate(kept)}
        return TokenTree(
            tokens=tuple(self._tokens[node] for node in kept),
            parents=tuple(places[self._parents[node]] for node in kept),
        )

    def expected_accepted(self) -> float:
        """The sum of the weights of the tree's nodes."""
        return sum(self._weights[node] for node in self._heaviest())

    def _heaviest(self) -> list[int]:
        """The nodes of the tree, the heaviest first. A parent is among them if a child is: it is at least as heavy and
        comes earlier."""
        order = sorted(range(len(self._weights)), key=lambda node: -self._weights[node])[: self._limits.max_nodes]
        return [node for node in order if self._weights[node] > 0.0 and self._weights[node] >= self._limits.min_weight]
