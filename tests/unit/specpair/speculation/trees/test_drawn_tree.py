import numpy as np
import pytest

from specpair.errors import InvalidDistributionError
from specpair.speculation.count_row import CountRow
from specpair.speculation.trees.drawn_tree import Draw, DrawnTree, Row
from specpair.speculation.trees.token_tree import ROOT, TokenTree

PAIR = Row(np.array([4, 7]), np.array([0.25, 0.75]))
TREE = TokenTree(tokens=(7, 4, 4), parents=(ROOT, 0, ROOT))


def test_rows_belong_to_the_nodes_with_children_in_order() -> None:
    below = Row.one_hot(4)
    drawn = DrawnTree.of(TREE, [PAIR, below])
    assert drawn.draws_below == {ROOT: [Draw(0, 0), Draw(2, 0)], 0: [Draw(1, 1)]}
    chain = DrawnTree.of(TokenTree.chain([7, 4]), [PAIR, below])
    assert chain.draws == (Draw(0, 0), Draw(1, 1))


def test_a_row_of_counts() -> None:
    row = Row.of_counts(CountRow([4, 7], [1 << 22, 3 << 22]))
    assert (row.token_ids.tolist(), row.probabilities.tolist()) == ([4, 7], [0.25, 0.75])
    assert (row.probability(7), row.probability(5)) == (0.75, 0.0)


@pytest.mark.parametrize(
    ("rows", "draws", "problem"),
    [
        ((PAIR, PAIR), ((0, 0), (1, 1), (3, 0)), "node 3 and row 0, which do not exist"),
        ((PAIR, PAIR), ((0, 0), (1, 2), (2, 0)), "node 1 and row 2, which do not exist"),
        ((PAIR, PAIR), ((0, 0), (1, 0), (2, 0)), "row 0, which belongs to another parent"),
        ((PAIR, Row.one_hot(7)), ((0, 0), (1, 1), (2, 0)), "row 1 gives no probability"),
        ((PAIR, PAIR), ((0, 0), (2, 0)), "give no token 1"),
        ((PAIR._replace(replaces=False), PAIR), ((0, 0), (0, 0), (1, 1), (2, 0)), "drawn without replacement"),
    ],
)
def test_draws_that_cannot_have_given_the_tree_are_refused(
    rows: tuple[Row, ...], draws: tuple[tuple[int, int], ...], problem: str
) -> None:
    with pytest.raises(InvalidDistributionError, match=problem):
        DrawnTree(tree=TREE, rows=rows, draws=tuple(Draw(*draw) for draw in draws))


def test_a_token_may_be_drawn_twice_with_replacement() -> None:
    drawn = DrawnTree(tree=TREE, rows=(PAIR, PAIR), draws=(Draw(0, 0), Draw(0, 0), Draw(1, 1), Draw(2, 0)))
    assert len(drawn.draws_below[ROOT]) == 3


def test_as_many_rows_as_nodes_with_children() -> None:
    with pytest.raises(InvalidDistributionError, match="has 1 rows; 2 nodes of the tree have children"):
        DrawnTree.of(TREE, [PAIR])
