"""Trees of tokens as messages."""

from typing import Any

import numpy as np
import pytest
import torch

from specpair.errors import InvalidDistributionError, InvalidFieldError
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.trees.drawn_tree import Draw, DrawnTree
from specpair.speculation.trees.token_tree import TokenTree
from specpair.v1.proposal_pb2 import Proposal
from specpair.wire.distributions import encode_dense
from specpair.wire.trees import decode_tree, encode_tree

pytestmark = pytest.mark.usefixtures("arithmetic")

TREE = TokenTree(tokens=(3, 1, 2, 3), parents=(-1, -1, 1, 1))
ROWS = [CountRow((1, 3), (TOTAL // 4, TOTAL - TOTAL // 4)), CountRow((0, 2, 3), (TOTAL // 2, TOTAL // 4, TOTAL // 4))]
DRAWS = (Draw(0, 0), Draw(1, 0), Draw(2, 1), Draw(3, 1))


def drawn(message: Proposal) -> DrawnTree:
    _, decoded = decode_tree(message, 4)
    assert decoded is not None
    return decoded


def test_a_drawn_tree_arrives_as_it_was_sent() -> None:
    tree, decoded = decode_tree(Proposal.FromString(encode_tree(TREE, ROWS, DRAWS).SerializeToString()), 4)
    assert decoded is not None and tree == decoded.tree == TREE and decoded.draws == DRAWS
    for row, sent in zip(decoded.rows, ROWS, strict=True):
        assert row.token_ids.tolist() == list(sent.token_ids) and not row.replaces
        assert np.array_equal(row.probabilities, np.array(sent.counts) / TOTAL)


def test_without_draws_each_token_was_drawn_once_in_order() -> None:
    message = encode_tree(TREE, ROWS, DRAWS)
    del message.draw_nodes[:], message.draw_rows[:]
    assert drawn(message).draws == DRAWS


def test_without_distributions_each_token_is_certain() -> None:
    assert decode_tree(encode_tree(TREE), 4) == (TREE, None)
    decoded = DrawnTree.certain(TREE)
    assert decoded.draws == tuple(Draw(node, node) for node in range(4))
    assert [row.probability(token) for row, token in zip(decoded.rows, TREE.tokens, strict=True)] == [1.0] * 4


def test_rows_may_be_dense() -> None:
    message = encode_tree(TREE, ROWS, DRAWS)
    dense = torch.tensor([[0.0, 0.25, 0.0, 0.75], [0.5, 0.0, 0.25, 0.25]])
    message.distributions.CopyFrom(encode_dense(dense))
    decoded = drawn(message)
    assert [row.token_ids.tolist() for row in decoded.rows] == [[1, 3], [0, 2, 3]]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a parent that comes later": ({"parent_indices": [-1, 1, 1, 1]}, "proposal.parent_indices"),
    "fewer parents": ({"parent_indices": [-1]}, "proposal.parent_indices"),
    "siblings that are equal": ({"token_ids": [3, 3, 2, 3]}, "proposal.token_ids"),
    "a token that is none": ({"token_ids": [3, 1, 2, 4]}, "proposal"),
    "a draw of no node": ({"draw_nodes": [0, 1, 2, 4]}, "proposal.draw_nodes"),
    "a node without a draw": ({"draw_nodes": [0, 1, 2, 2]}, "proposal.draw_nodes"),
    "fewer rows than draws": ({"draw_rows": [0, 0, 1]}, "proposal.draw_rows"),
    "a row that is left out": ({"draw_rows": [0, 0, 2, 2]}, "proposal.draw_rows"),
    "a row of two parents": ({"draw_rows": [0, 0, 1, 0]}, "proposal"),
    "a row that cannot give the token": ({"token_ids": [3, 2, 2, 3]}, "proposal"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_tree_is_refused_with_its_field(case: str) -> None:
    fields, named = BAD[case]
    message = encode_tree(TREE, ROWS, DRAWS)
    for name, values in fields.items():
        held = getattr(message, name)
        del held[:]
        held.extend(values)
    with pytest.raises((InvalidFieldError, InvalidDistributionError)) as caught:
        decode_tree(message, 4)
    assert caught.value.metadata["field"].startswith(named)
