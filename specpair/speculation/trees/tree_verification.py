"""Verifies trees: which paths are accepted, and the target's next tokens.

Few numbers decide: the target's probabilities of tokens that the draft could have drawn. They are fetched at once for
all trees, the trees are judged one by one, and the next tokens are drawn together. All arithmetic of a tree is its own,
so its verdict is the same bits alone and beside others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.arrays import Array, empty, in_kind_of, largest_of, library, to_doubles
from specpair.speculation.draft_rows import SMALLEST_WEIGHT
from specpair.speculation.gumbel import choose
from specpair.speculation.own_token import draw_own
from specpair.speculation.trees.drawn_tree import DrawnTree
from specpair.speculation.trees.siblings import Siblings, siblings_by_parent
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from specpair.speculation.trees.tree_rules import End, Offered, multi_step, traversal

RULES = {Rule.TOKEN: multi_step, Rule.BLOCK: traversal}


class TreeVerdict(NamedTuple):
    """The result for one tree."""

    path: list[int]
    """The accepted nodes, from the first token on."""
    next_token: int
    """A correction, or a bonus token if the path ends with a leaf."""


def follow_choices(trees: Sequence[TokenTree], choices: Sequence[int]) -> list[TreeVerdict]:
    """Follows the child that equals the target's choice: exact for any tree. For greedy targets and the coupled rule.

    `choices` [sum of (N_b + 1)] are what the target chooses in each row (Stratos, "Speculative Decoding", appendix A).
    """
    verdicts: list[TreeVerdict] = []
    first = 0
    for tree in trees:
        path, node = list[int](), ROOT
        while (child := tree.child(node, int(choices[first + 1 + node]))) is not None:
            path.append(child)
            node = child
        verdicts.append(TreeVerdict(path, int(choices[first + 1 + node])))
        first += len(tree) + 1
    return verdicts


def verify_coupled_trees(
    target: Tensor, trees: Sequence[TokenTree], seeds: Sequence[int], lengths: Sequence[int]
) -> list[TreeVerdict]:
    """The coupled rule: the target chooses with the noise of the position, which all nodes of one depth share.

    `target` [sum of (N_b + 1), V] holds the rows of all sequences one after the other; `seeds` and `lengths`, the
    numbers of committed tokens, are one for each sequence. So the tokens are those of the target alone.
    """
    row_seeds = [seed for tree, seed in zip(trees, seeds, strict=True) for _ in range(len(tree) + 1)]
    positions = [length + depth for tree, length in zip(trees, lengths, strict=True) for depth in (0, *tree.depths)]
    return follow_choices(trees, choose(target, row_seeds, positions).tolist())


def verify_trees(
    target: Array,
    trees: Sequence[DrawnTree],
    rule: Rule,
    accept_uniforms: Sequence[np.ndarray],
    seeds: Array,
    steps: Array,
) -> list[TreeVerdict]:
    """The token rule or the block rule.

    `target` [sum of (N_b + 1), V] holds the rows of all sequences one after the other, normalised, as a numpy array or
    as a tensor on any device; `seeds` and `steps` [B], which key the noise of the next tokens, are of the same kind.
    `accept_uniforms` in [0, 1) has [N_b] for each tree, keyed by step and node.
    """
    siblings = [siblings_by_parent(drawn) for drawn in trees]
    firsts = np.cumsum([0, *(len(drawn.tree) + 1 for drawn in trees)])[:-1].tolist()
    ends: list[End] = []
    for offered, uniforms in zip(offered_by_tree(target, siblings, firsts), accept_uniforms, strict=True):
        numbers = uniforms.tolist()
        ends.append(RULES[rule](offered, lambda node, threshold, numbers=numbers: numbers[node] < threshold))
    rows = np.array([first + 1 + end.node for first, end in zip(firsts, ends, strict=True)], dtype=np.int64)
    tokens = draw_own(next_weights(target, rows, ends, siblings), seeds, steps).tolist()
    return [
        TreeVerdict(drawn.tree.path(end.node), token) for drawn, end, token in zip(trees, ends, tokens, strict=True)
    ]


def offered_by_tree(target: Array, siblings: list[dict[int, Siblings]], firsts: list[int]) -> list[Offered]:
    """The siblings of each tree with the target's probabilities of their tokens, by one look at the device."""
    width = target.shape[1]
    places = [
        (first + 1 + parent) * width + own.token_ids
        for first, by_parent in zip(firsts, siblings, strict=True)
        for parent, own in by_parent.items()
    ]
    if not places:
        return [Offered({}, {}) for _ in siblings]
    found = to_doubles(target.reshape(-1)[in_kind_of(target, np.concatenate(places))])
    values = found.cpu().numpy() if isinstance(found, Tensor) else found
    parts = iter(np.split(values, np.cumsum([len(part) for part in places])[:-1]))
    return [Offered(by_parent, {parent: next(parts) for parent in by_parent}) for by_parent in siblings]


def next_weights(target: Array, rows: np.ndarray, ends: list[End], siblings: list[dict[int, Siblings]]) -> Array:
    """What the next tokens are drawn from: the residuals [B, V] float64, not normalised.

    If a residual has no mass, which only rounding can cause, the target's row replaces it.
    """
    scales = np.array([1.0 if end.residual is None else end.residual.scale for end in ends])
    chosen = in_kind_of(target, rows)
    weights = empty((len(ends), target.shape[1]), target)
    weights[:] = target[chosen] * in_kind_of(target, scales)[:, None]
    for row, (end, by_parent) in enumerate(zip(ends, siblings, strict=True)):
        if end.residual is not None:
            token_ids = in_kind_of(target, by_parent[end.node].token_ids)
            weights[row, token_ids] = in_kind_of(target, end.residual.values)
    is_empty = largest_of(weights) <= SMALLEST_WEIGHT
    return library(target).where(is_empty[:, None], target[chosen], weights)
