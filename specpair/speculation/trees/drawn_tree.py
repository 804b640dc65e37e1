"""A proposed tree with the distributions from which its tokens were drawn: what the token and the block rule judge.

Siblings are drawn one after the other, each from a distribution at their parent. A token that is drawn twice below one
parent is one node with two draws, both of which the rules must know: so a tree has a list of draws beside its nodes.
With several drafts the draws below one parent come from several distributions (SpecInfer; Stratos, "Speculative
Decoding", section 2.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from specpair.errors import InvalidDistributionError
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.trees.token_tree import ROOT, TokenTree


class Row(NamedTuple):
    """A distribution at one node, from one draft."""

    token_ids: np.ndarray
    """[S] int64, each token once."""
    probabilities: np.ndarray
    """[S] float64; they sum to 1."""
    replaces: bool = True
    """Whether tokens are drawn with replacement, which is independently. Otherwise each draw leaves out the tokens that
    were drawn from this row before, and the rest of the row is normalised."""

    @classmethod
    def of_counts(cls, row: CountRow, *, replaces: bool = True) -> "Row":
        return cls(np.asarray(row.token_ids, dtype=np.int64), np.asarray(row.counts) / TOTAL, replaces)

    @classmethod
    def one_hot(cls, token: int) -> "Row":
        """Of a draft that was certain."""
        return cls(np.array([token]), np.ones(1))

    def probability(self, token: int) -> float:
        return float(self.probabilities[self.token_ids == token].sum())


class Draw(NamedTuple):
    """One draw."""

    node: int
    """The node that it gave."""
    row: int
    """The distribution, as an index into the tree's rows."""


@dataclass(frozen=True, kw_only=True)
class DrawnTree:
    """Raises InvalidDistributionError if the draws cannot have given the tree."""

    tree: TokenTree
    rows: tuple[Row, ...]
    """All distributions. Each belongs to one parent."""
    draws: tuple[Draw, ...]
    """All draws. Those below one parent stand in the order in which they were drawn."""

    def __post_init__(self) -> None:
        owners: dict[int, int] = {}
        for number, (node, row) in enumerate(self.draws):
            name = f"proposal.draw_nodes[{number}]"
            if not 0 <= node < len(self.tree) or not 0 <= row < len(self.rows):
                raise InvalidDistributionError(name, f"names node {node} and row {row}, which do not exist")
            parent = self.tree.parents[node]
            if owners.setdefault(row, parent) != parent:
                raise InvalidDistributionError(name, f"is from row {row}, which belongs to another parent")
            if not self.rows[row].probability(self.tree.tokens[node]) > 0.0:
                raise InvalidDistributionError(name, f"gave a token that row {row} gives no probability")
        if missing := set(range(len(self.tree))).difference(draw.node for draw in self.draws):
            raise InvalidDistributionError("proposal.draw_nodes", f"give no token {min(missing)}")
        removed = [draw for draw in self.draws if not self.rows[draw.row].replaces]
        if len(set(removed)) < len(removed):
            raise InvalidDistributionError("proposal.draw_nodes", "repeat a token that was drawn without replacement")

    @classmethod
    def of(cls, tree: TokenTree, rows: Sequence[Row]) -> "DrawnTree":
        """A tree whose children were drawn in the order of their indices, with one row for each node that has children:
        first that of ROOT, then of nodes in ascending order. For a chain, row i is that of token i."""
        owners = [node for node in range(ROOT, len(tree)) if tree.children(node)]
        if len(rows) != len(owners):
            raise InvalidDistributionError(
                "proposal.distributions", f"has {len(rows)} rows; {len(owners)} nodes of the tree have children"
            )
        draws = (Draw(child, row) for row, node in enumerate(owners) for child in tree.children(node))
        return cls(tree=tree, rows=tuple(rows), draws=tuple(draws))

    @classmethod
    def certain(cls, tree: TokenTree) -> "DrawnTree":
        """A tree of which each token was its drafter's only choice."""
        rows = tuple(Row.one_hot(token) for token in tree.tokens)
        return cls(tree=tree, rows=rows, draws=tuple(Draw(node, node) for node in range(len(tree))))

    @cached_property
    def draws_below(self) -> dict[int, list[Draw]]:
        """The draws below each node that has children, in order."""
        below: dict[int, list[Draw]] = {}
        for draw in self.draws:
            below.setdefault(self.tree.parents[draw.node], []).append(draw)
        return below
