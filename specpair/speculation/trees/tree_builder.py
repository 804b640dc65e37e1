"""Builds a tree from draws, one after the other: equal tokens below one parent become one node."""

from dataclasses import dataclass, field

from specpair.speculation.trees.drawn_tree import Draw, DrawnTree, Row
from specpair.speculation.trees.token_tree import ROOT, TokenTree


@dataclass(eq=False)
class TreeBuilder:
    """A tree that grows."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int) -> int:
        """The node of a token below `parent`, which is new unless it is there already."""
        assert ROOT <= parent < len(self)
        node = self._nodes.setdefault((parent, token), len(self))
        if node == len(self):
            self.tokens.append(token)
            self.parents.append(parent)
        return node

    def add_row(self, row: Row) -> int:
        """The index of a new row."""
        self.rows.append(row)
        return len(self.rows) - 1

    def add_draw(self, parent: int, token: int, row: int) -> int:
        """The node that a draw below `parent` gave."""
        node = self.add(parent, token)
        self.draws.append(Draw(node, row))
        return node

    def tree(self) -> TokenTree:
        return TokenTree(tokens=tuple(self.tokens), parents=tuple(self.parents))

    def drawn_tree(self) -> DrawnTree:
        return DrawnTree(tree=self.tree(), rows=tuple(self.rows), draws=tuple(self.draws))
