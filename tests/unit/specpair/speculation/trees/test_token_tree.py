from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.caches.attention import tree_mask, tree_positions
from specpair.caches.holding import Segment
from specpair.errors import InvalidFieldError
from specpair.speculation.trees.depths import depths
from specpair.speculation.trees.token_tree import ROOT, TokenTree

#        0 -- 1 -- 4
# ROOT <
#        2 -- 3
TREE = TokenTree(tokens=(7, 8, 9, 7, 7), parents=(ROOT, 0, ROOT, 2, 1))


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 8) -> TokenTree:
    """Siblings have different tokens, because all nodes have."""
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(draw(st.integers(0, max_nodes)))]
    return TokenTree(tokens=tuple(draw(st.permutations(range(len(parents))))), parents=tuple(parents))


def test_depths_children_and_paths() -> None:
    assert TREE.depths == (1, 2, 1, 2, 3)
    assert [TREE.children(node) for node in range(ROOT, 5)] == [(0, 2), (1,), (4,), (3,), (), ()]
    assert TREE.path(4) == [0, 1, 4]
    assert TREE.path(ROOT) == []
    assert (TREE.child(ROOT, 9), TREE.child(2, 7), TREE.child(2, 8)) == (2, 3, None)
    assert TREE.positions(10).tolist() == [10, 11, 10, 11, 12]


def test_a_chain_is_the_tree_where_each_token_follows_the_one_before() -> None:
    chain = TokenTree.chain([3, 3, 4])
    assert chain.parents == (ROOT, 0, 1)
    assert chain.is_chain
    assert not TREE.is_chain
    assert TokenTree.chain([]).is_chain


@given(trees())
def test_the_depth_is_the_length_of_the_path(tree: TokenTree) -> None:
    assert [len(tree.path(node)) for node in range(len(tree))] == list(tree.depths) == depths(tree.parents)


def test_depths_of_what_is_no_tree_are_numbers_all_the_same() -> None:
    assert depths([3, -5, 1, 3]) == [1, 1, 2, 1]


@given(trees(), st.integers(1, 5))
def test_mask_and_positions_are_those_that_attention_is_given(tree: TokenTree, length: int) -> None:
    parents = [None if parent == ROOT else parent for parent in tree.parents]
    assert tree.positions(length).tolist() == tree_positions(length, parents)
    mask = tree_mask(Segment(cast(Any, None), length, len(tree)), parents, None)
    for node in range(len(tree)):
        assert mask[node, length:].nonzero().flatten().tolist() == tree.path(node), "each attends to its own path"


@pytest.mark.parametrize(
    ("tokens", "parents", "field"),
    [
        ((1, 2), (ROOT,), "proposal.parent_indices"),
        ((1, 2), (ROOT, 1), "proposal.parent_indices[1]"),
        ((1, 2), (1, ROOT), "proposal.parent_indices[0]"),
        ((1,), (-2,), "proposal.parent_indices[0]"),
        ((1, -3), (ROOT, 0), "proposal.token_ids[1]"),
        ((1, 2, 1), (ROOT, 0, ROOT), "proposal.token_ids[2]"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: tuple[int, ...], parents: tuple[int, ...], field: str) -> None:
    with pytest.raises(InvalidFieldError) as raised:
        TokenTree(tokens=tokens, parents=parents)
    assert raised.value.metadata["field"] == field
