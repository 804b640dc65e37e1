import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.trees.ranked_growth import Candidate, GrowthLimits, RankedGrowth
from specpair.speculation.trees.token_tree import ROOT, TokenTree


def chances(path: tuple[int, ...]) -> list[Candidate]:
    """The candidates after a path, made from it."""
    numbers = random.Random(str(path))
    weights = sorted((numbers.random() ** 3 for _ in range(4)), reverse=True)
    return [Candidate(token, weight / sum(weights)) for token, weight in enumerate(weights)]


def grow(limits: GrowthLimits) -> tuple[RankedGrowth, list[int]]:
    """The growth when it is finished, and the number of rows of each pass."""
    growth, passes = RankedGrowth(limits), list[int]()
    paths: dict[int, tuple[int, ...]] = {ROOT: ()}
    while growth.frontier:
        for node in growth.frontier:
            if node != ROOT:
                paths[node] = (*paths[growth.parent(node)], growth.token(node))
        passes.append(len(growth.frontier))
        growth.extend([chances(paths[node]) for node in growth.frontier])
    return growth, passes


def weights(limits: GrowthLimits, path: tuple[int, ...] = (), weight: float = 1.0) -> list[float]:
    """Of all nodes below a path that the limits allow."""
    if len(path) == limits.max_depth:
        return []
    own = [(token, weight * chance) for token, chance in chances(path)[: limits.max_children]]
    return [one for _, one in own] + [below for token, one in own for below in weights(limits, (*path, token), one)]


def paths_of(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[step] for step in tree.path(node)) for node in range(len(tree))}


@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4))
def test_the_tree_is_the_best_of_its_size(max_nodes: int, max_depth: int, max_children: int) -> None:
    limits = GrowthLimits(max_nodes=max_nodes, max_depth=max_depth, max_children=max_children, max_frontier=max_nodes)
    growth, passes = grow(limits)
    best = sorted(weights(limits), reverse=True)[:max_nodes]
    assert growth.expected_accepted() == pytest.approx(sum(best))
    assert len(growth.tree()) == len(best)
    assert len(passes) <= max_depth


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.0, 0.1]))
def test_no_limit_is_passed(nodes: int, depth: int, children: int, frontier: int, min_weight: float) -> None:
    limits = GrowthLimits(
        max_nodes=nodes, max_depth=depth, max_children=children, max_frontier=frontier, min_weight=min_weight
    )
    growth, passes = grow(limits)
    tree = growth.tree()
    assert len(tree) <= nodes
    assert max(tree.depths, default=0) <= depth
    assert max(len(tree.children(node)) for node in range(ROOT, len(tree))) <= children
    assert max(passes) <= frontier
    for path in paths_of(tree):
        weight = 1.0
        for length in range(len(path)):
            weight *= chances(path[:length])[path[length]].chance
        assert weight >= min_weight


def test_a_certain_draft_grows_a_chain() -> None:
    growth = RankedGrowth(GrowthLimits(max_nodes=4, max_depth=9))
    while growth.frontier:
        growth.extend([[Candidate(5, 1.0), Candidate(6, 0.0)] for _ in growth.frontier])
    assert growth.tree() == TokenTree.chain([5] * 4)


def test_nothing_grows_without_room() -> None:
    assert RankedGrowth(GrowthLimits(max_nodes=0, max_depth=3)).frontier == []
    assert len(RankedGrowth(GrowthLimits(max_nodes=3, max_depth=0)).tree()) == 0
