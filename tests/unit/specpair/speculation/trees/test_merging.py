import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.trees.drawn_tree import Draw, DrawnTree, Row
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from tests.decoded_merging import merge_drawn, merge_tokens
from tests.unit.specpair.speculation.trees.test_token_tree import trees


def chain(*tokens: int) -> DrawnTree:
    return DrawnTree.of(TokenTree.chain(tokens), [Row(np.arange(9), np.full(9, 1 / 9)) for _ in tokens])


def test_chains_share_their_beginnings() -> None:
    """The example of Stratos' notes, section 2.1: four drafts of two tokens."""
    merged = merge_tokens([TokenTree.chain(pair) for pair in ((2, 4), (2, 5), (3, 6), (3, 7))], 6)
    assert merged.tokens == (2, 4, 5, 3, 6, 7)
    assert merged.parents == (ROOT, 0, 0, ROOT, 3, 3)


def test_every_draw_is_kept_the_first_drafts_first() -> None:
    merged = merge_drawn([chain(2, 4), chain(3, 4), chain(2, 4)], 10)
    assert merged.tree.tokens == (2, 4, 3, 4)
    assert merged.draws_below == {
        ROOT: [Draw(0, 0), Draw(2, 2), Draw(0, 4)],
        0: [Draw(1, 1), Draw(1, 5)],
        2: [Draw(3, 3)],
    }


def test_what_does_not_fit_is_left_out_whatever_its_token() -> None:
    """The third chain begins like the first, and would add no node."""
    merged = merge_drawn([chain(2, 4), chain(3), chain(2)], 3)
    assert [merged.tree.tokens[node] for node, _ in merged.draws] == [2, 4, 3]
    assert merge_tokens([TokenTree.chain([2, 4]), TokenTree.chain([3, 4])], 3).tokens == (2, 4, 3)


@given(st.lists(trees(), max_size=4))
def test_a_merged_tree_has_every_path_of_each_and_no_other(several: list[TokenTree]) -> None:
    def paths(tree: TokenTree) -> set[tuple[int, ...]]:
        return {tuple(tree.tokens[step] for step in tree.path(node)) for node in range(len(tree))}

    merged = merge_tokens(several, 100)
    assert paths(merged) == set().union(*map(paths, several))
    assert len(paths(merged)) == len(merged)
