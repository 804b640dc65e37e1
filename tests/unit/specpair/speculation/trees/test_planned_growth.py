import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.trees.drawn_tree import DrawnTree, Row
from specpair.speculation.trees.planned_growth import PlannedGrowth
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.speculation.trees.token_tree import ROOT, TokenTree

UNIFORM = Row(np.arange(10), np.full(10, 0.1), replaces=False)


def grow(limits: GrowthLimits, typical: tuple[float, ...], first_token: int = 0) -> tuple[DrawnTree, list[int]]:
    """With typical chances everywhere; the tree, and the number of rows of each pass."""
    growth, passes = PlannedGrowth(limits, typical), list[int]()
    while growth.frontier:
        passes.append(len(growth.frontier))
        counts = growth.counts([typical for _ in growth.frontier])
        tokens = [[(first_token + number) % 10 for number in range(count)] for count in counts]
        growth.extend([UNIFORM] * len(counts), tokens, [typical[:count] for count in counts])
    return growth.tree(), passes


def best_weights(limits: GrowthLimits, typical: tuple[float, ...], depth: int = 1, weight: float = 1.0) -> list[float]:
    """Of all nodes that may be drawn, the heaviest first."""
    if depth > limits.max_depth:
        return []
    own = [weight * chance for chance in typical[: limits.max_children]]
    below = [one for child in own for one in best_weights(limits, typical, depth + 1, child)]
    return sorted([*own, *below], reverse=True)


@given(st.integers(1, 16), st.integers(1, 4), st.sampled_from([(0.9, 0.05), (0.6, 0.2, 0.1), (0.5, 0.3, 0.1)]))
def test_the_tree_is_the_best_of_its_size(max_nodes: int, max_depth: int, typical: tuple[float, ...]) -> None:
    limits = GrowthLimits(max_nodes=max_nodes, max_depth=max_depth, max_frontier=max_nodes)
    drawn, passes = grow(limits, typical)
    tree = drawn.tree
    found: list[float] = []
    for node, parent in enumerate(tree.parents):
        weight = 1.0 if parent == ROOT else found[parent]
        found.append(weight * typical[tree.children(parent).index(node)])
    assert sum(found) == pytest.approx(sum(best_weights(limits, typical)[:max_nodes]))
    assert len(passes) == max(tree.depths)


@given(st.integers(1, 16), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_no_limit_is_passed(nodes: int, depth: int, children: int, frontier: int) -> None:
    limits = GrowthLimits(max_nodes=nodes, max_depth=depth, max_children=children, max_frontier=frontier)
    drawn, passes = grow(limits, (0.5, 0.4, 0.3, 0.2))
    tree = drawn.tree
    assert len(tree) <= nodes
    assert max(tree.depths) <= depth
    assert max(len(tree.children(node)) for node in range(ROOT, len(tree))) <= children
    assert max(passes) <= frontier


def test_the_shape_follows_from_chances_alone() -> None:
    limits = GrowthLimits(max_nodes=12, max_depth=5)
    assert grow(limits, (0.6, 0.2))[0].tree.parents == grow(limits, (0.6, 0.2), first_token=4)[0].tree.parents


def test_a_sure_draft_grows_a_chain() -> None:
    assert grow(GrowthLimits(max_nodes=5, max_depth=9), (0.99, 0.01))[0].tree == TokenTree.chain([0] * 5)


def test_a_token_that_is_drawn_twice_is_one_node_and_leaves_room() -> None:
    growth = PlannedGrowth(GrowthLimits(max_nodes=3, max_depth=2), (0.5, 0.4))
    assert growth.counts([(0.5, 0.4)]) == [2]
    growth.extend([UNIFORM._replace(replaces=True)], [[7, 7]], [(0.5, 0.4)])
    assert growth.frontier == [0]
    assert growth.counts([(0.5, 0.4)]) == [2]


def test_a_row_decides_how_many_are_drawn() -> None:
    limits = GrowthLimits(max_nodes=4, max_depth=4)
    assert PlannedGrowth(limits, (0.8,)).counts([(0.3, 0.29, 0.28, 0.2)]) == [3]
    assert PlannedGrowth(limits, (0.8,)).counts([(0.9, 0.1)]) == [1]
    assert PlannedGrowth(limits, (0.8,)).counts([()]) == [0]


def test_a_token_that_is_unlikely_once_it_is_drawn_is_not_grown() -> None:
    """Though it was drawn first."""
    growth = PlannedGrowth(GrowthLimits(max_nodes=4, max_depth=3), (0.6, 0.2))
    assert growth.counts([(0.5, 0.4)]) == [2]
    growth.extend([UNIFORM], [[3, 5]], [(0.1, 0.7)])
    assert [growth.token(node) for node in growth.frontier] == [5]
