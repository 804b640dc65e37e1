"""Grows a tree of draws, for the token and the block rule: how many are drawn at a node is decided before they are.

Every draw is kept. So a node's number of draws may depend on all tokens of the tree so far and on the row at the node,
but on nothing that is drawn and dropped (docs/exactness.md, rule 8). A plan is made before each level: the best tree
that could still be grown, by expected accepted tokens, with typical chances where no row is known yet. Only its next
level is drawn. What was drawn then says how likely each node is: a token that holds little of its row is accepted less
often, and gets fewer descendants.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from specpair.speculation.trees.drawn_tree import DrawnTree, Row
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.speculation.trees.token_tree import ROOT
from specpair.speculation.trees.tree_builder import TreeBuilder


@dataclass(frozen=True, order=True)
class _Draw:
    """A draw that a plan may have."""

    cost: float
    """The negative weight of the node that it gives: the lightest cost comes first."""
    depth: int
    origin: int
    """The node of the frontier that it descends from, as an index."""
    rank: int = field(compare=False)
    """The number of draws before it at its parent."""
    weight: float = field(compare=False)
    """The weight of its parent."""
    chances: Sequence[float] = field(compare=False)
    """Of the draws at its parent."""


class PlannedGrowth:
    """A tree that grows by one level at a time: evaluate the `frontier`, ask for `counts`, draw so many tokens from
    each row, and `extend`; until there is no frontier."""

    def __init__(self, limits: GrowthLimits, typical: Sequence[float]):
        """`typical` are the chances of a node's first draw, its second and so on: how likely the target is to go on
        with it if it comes to the node. Their sum is at most 1."""
        self._limits = limits
        self._typical = typical
        self._builder = TreeBuilder()
        self._weights: dict[int, float] = {ROOT: 1.0}
        self._depth = 0
        self.frontier: list[int] = []
        """The nodes whose rows are asked for."""
        self._look_ahead([ROOT])

    @property
    def depth(self) -> int:
        """Levels so far."""
        return self._depth

    @property
    def draw_count(self) -> int:
        """Draws so far."""
        return len(self._builder.draws)

    def token(self, node: int) -> int:
        return self._builder.tokens[node]

    def parent(self, node: int) -> int:
        return self._builder.parents[node]

    def counts(self, chances: Sequence[Sequence[float]]) -> list[int]:
        """How many tokens to draw at each node of the frontier, by the chances of its draws as its row is known now."""
        return self._plan(self.frontier, [own[: self._limits.max_children] for own in chances])

    def extend(self, rows: Sequence[Row], drawn: Sequence[Sequence[int]], chances: Sequence[Sequence[float]]) -> None:
        """Adds all tokens that were drawn at each node of the frontier, in order, with their rows. `chances` are those
        of `counts`, now that the tokens are known."""
        new: list[int] = []
        for node, row, tokens, own in zip(self.frontier, rows, drawn, chances, strict=True):
            number = self._builder.add_row(row) if tokens else 0
            for token, chance in zip(tokens, own, strict=True):  # every draw is kept
                child = self._builder.add_draw(node, token, number)
                if child not in self._weights:
                    self._weights[child] = self._weights[node] * chance
                    new.append(child)
        self._depth += 1
        self._look_ahead(new)

    def tree(self) -> DrawnTree:
        return self._builder.drawn_tree()

    def _look_ahead(self, nodes: list[int]) -> None:
        """Makes those nodes the frontier that a plan with typical chances goes on from."""
        heaviest = sorted(nodes, key=lambda node: -self._weights[node])[: self._limits.max_frontier]
        counts = self._plan(heaviest, [self._typical[: self._limits.max_children]] * len(heaviest))
        self.frontier = [node for node, count in zip(heaviest, counts, strict=True) if count]

    def _plan(self, nodes: Sequence[int], chances: Sequence[Sequence[float]]) -> list[int]:
        """The number of draws at each node in the best tree that can still be grown from there."""
        counts = [0] * len(nodes)
        heap: list[_Draw] = []
        for origin, (node, own) in enumerate(zip(nodes, chances, strict=True)):
            self._offer(heap, self._depth + 1, origin, 0, self._weights[node], own)
        for _ in range(self._limits.max_nodes - len(self._builder)):
            if not heap:
                break
            best = heapq.heappop(heap)
            if best.depth == self._depth + 1:
                counts[best.origin] += 1
            self._offer(heap, best.depth, best.origin, best.rank + 1, best.weight, best.chances)
            typical = self._typical[: self._limits.max_children]
            self._offer(heap, best.depth + 1, best.origin, 0, -best.cost, typical)
        return counts

    def _offer(
        self, heap: list[_Draw], depth: int, origin: int, rank: int, weight: float, chances: Sequence[float]
    ) -> None:
        """Adds a draw to those that a plan may have, if it is worth anything."""
        if depth > self._limits.max_depth or rank >= len(chances):
            return
        child = weight * chances[rank]
        if child > 0.0 and child >= self._limits.min_weight:
            heapq.heappush(heap, _Draw(-child, depth, origin, rank, weight, chances))
