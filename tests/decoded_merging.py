"""Merges the proposals of several drafts into one tree, where they share their beginnings.

SpecInfer (Miao et al. 2024; Stratos, "Speculative Decoding", section 2.1): the drafts' chains are packed into a prefix
tree, and each token keeps the distribution from which it was drawn. Below one parent the first draft's draws come
first, then the second's: an order that no token decides.

A draw of several drafts must not use the same random numbers: see `drawing.first_offset`.
"""

from collections.abc import Sequence

from specpair.speculation.trees.drawn_tree import DrawnTree
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from specpair.speculation.trees.tree_builder import TreeBuilder


def merge_tokens(trees: Sequence[TokenTree], max_nodes: int) -> TokenTree:
    """Trees that were not drawn, for the coupled rule and greedy targets; at most `max_nodes` of their nodes, the first
    trees' first."""
    builder = TreeBuilder()
    for tree in trees:
        nodes = {ROOT: ROOT}
        for token, parent, node in zip(tree.tokens, tree.parents, range(len(tree)), strict=True):
            if len(builder) >= max_nodes:
                return builder.tree()
            nodes[node] = builder.add(nodes[parent], token)
    return builder.tree()


def merge_drawn(trees: Sequence[DrawnTree], max_nodes: int) -> DrawnTree:
    """Drawn trees with all their draws.

    When there are `max_nodes` nodes, the rest is left out without a look at it: what is left out must not depend on
    the tokens that it holds (docs/exactness.md, rule 8).
    """
    builder = TreeBuilder()
    for drawn in trees:
        _add(builder, drawn, max_nodes)
    return builder.drawn_tree()


def _add(builder: TreeBuilder, drawn: DrawnTree, max_nodes: int) -> None:
    tree = drawn.tree
    nodes, rows = {ROOT: ROOT}, dict[int, int]()
    for draw in sorted(drawn.draws, key=lambda draw: tree.depths[draw.node]):  # stable: siblings stay in order
        if len(builder) >= max_nodes:
            return
        if draw.row not in rows:
            rows[draw.row] = builder.add_row(drawn.rows[draw.row])
        parent = nodes[tree.parents[draw.node]]
        nodes[draw.node] = builder.add_draw(parent, tree.tokens[draw.node], rows[draw.row])
