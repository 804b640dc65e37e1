"""Proposals are merged as bytes, exactly as `tests.decoded_merging` merges decoded trees."""

import random

import numpy as np
import pytest

from coordinator.peers.merged_proposal import check_mergeable, merge_proposals
from specpair.errors import InvalidDistributionError
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.trees.drawn_tree import Draw, DrawnTree
from specpair.speculation.trees.token_tree import TokenTree
from specpair.v1.proposal_pb2 import (
    TENSOR_TYPE_FLOAT32,
    DenseDistributions,
    Distributions,
    OneHotDistributions,
    Proposal,
    SparseDistributions,
    Tensor,
)
from specpair.wire.counts import encode_counts
from specpair.wire.trees import decode_tree, encode_tree
from tests.decoded_merging import merge_drawn, merge_tokens

VOCABULARY = 6


def some_row(pick: random.Random, token: int) -> CountRow:
    """A row that gives the token."""
    others = pick.sample([i for i in range(VOCABULARY) if i != token], pick.randrange(3))
    share = TOTAL // (len(others) + 1)
    return CountRow((token, *others), (TOTAL - share * len(others), *[share] * len(others)))


def some_proposal(pick: random.Random, *, is_tree: bool) -> Proposal:
    """A chain, or a tree with siblings drawn from one row."""
    tokens = [pick.randrange(VOCABULARY) for _ in range(pick.randrange(1, 5))]
    if not is_tree:
        return Proposal(token_ids=tokens, distributions=encode_counts([some_row(pick, token) for token in tokens]))
    tree = TokenTree(tokens=(1, 2, tokens[0]), parents=(-1, -1, 0))
    rows = [CountRow((1, 2), (TOTAL // 2, TOTAL // 2)), some_row(pick, tokens[0])]
    return encode_tree(tree, rows, (Draw(0, 0), Draw(1, 0), Draw(2, 1)))


def as_drawn(proposal: Proposal) -> DrawnTree:
    """The tree of a chain, or of a tree."""
    message = Proposal()
    message.CopyFrom(proposal)
    if not message.parent_indices:
        message.parent_indices.extend(range(-1, len(message.token_ids) - 1))
    tree, drawn = decode_tree(message, VOCABULARY)
    return drawn or DrawnTree.certain(tree)


def same(one: DrawnTree, other: DrawnTree) -> bool:
    rows = [(list(row.token_ids), list(row.probabilities)) for row in one.rows]
    own = [(one.draws[i].node, rows[draw.row]) for i, draw in enumerate(one.draws)]
    others = [(list(row.token_ids), list(row.probabilities)) for row in other.rows]
    theirs = [(other.draws[i].node, others[draw.row]) for i, draw in enumerate(other.draws)]
    is_shared = [draw.row for draw in one.draws] == [draw.row for draw in other.draws]
    return one.tree == other.tree and own == theirs and is_shared


@pytest.mark.parametrize("seed", range(60))
def test_it_merges_as_decoded_trees_are_merged(seed: int) -> None:
    pick = random.Random(seed)
    proposals = [some_proposal(pick, is_tree=pick.random() < 0.4) for _ in range(pick.randrange(2, 5))]
    most = pick.choice([3, 5, 20])
    for proposal in proposals:
        check_mergeable(proposal, 4)
    merged = merge_proposals(proposals, most)
    expected = merge_drawn([as_drawn(proposal) for proposal in proposals], most)
    assert same(as_drawn(merged.proposal), expected)
    for proposal, nodes in zip(proposals, merged.nodes, strict=True):
        assert [merged.proposal.token_ids[node] for node in nodes] == list(proposal.token_ids)[: len(nodes)]
    if most == 20:
        assert set().union(*merged.nodes) == set(range(len(merged.proposal.token_ids)))


def test_tokens_without_rows() -> None:
    """Of the coupled rule, and of drafts that were certain."""
    chains = [[1, 2, 3], [1, 2, 4], [5]]
    merged = merge_proposals([Proposal(token_ids=chain) for chain in chains], 10)
    expected = merge_tokens([TokenTree.chain(chain) for chain in chains], 10)
    assert tuple(merged.proposal.token_ids) == expected.tokens
    assert tuple(merged.proposal.parent_indices) == expected.parents
    assert merged.nodes == ((0, 1, 2), (0, 1, 3), (4,))
    assert not merged.proposal.HasField("distributions")


def test_a_proposal_alone_stays_as_it_is() -> None:
    alone = some_proposal(random.Random(1), is_tree=False)
    merged = merge_proposals([Proposal(), alone], 10)
    assert merged.proposal == alone and merged.nodes == ((), tuple(range(len(alone.token_ids))))


def test_a_certain_draft_beside_one_that_was_not() -> None:
    certain = Proposal(token_ids=[4, 5], distributions=Distributions(one_hot=OneHotDistributions()))
    drawn = some_proposal(random.Random(3), is_tree=False)
    decoded = as_drawn(merge_proposals([certain, drawn], 10).proposal)
    assert [row.probability(token) for row, token in zip(decoded.rows, (4, 5), strict=False)] == [1.0, 1.0]
    rows = np.full((1, VOCABULARY), 1 / VOCABULARY, dtype=np.float32)
    tensor = Tensor(type=TENSOR_TYPE_FLOAT32, shape=[1, VOCABULARY], data=rows.tobytes())
    dense = Proposal(token_ids=[2], distributions=Distributions(dense=DenseDistributions(probabilities=tensor)))
    decoded = as_drawn(merge_proposals([dense, certain], 10).proposal)
    assert [list(row.token_ids) for row in decoded.rows] == [list(range(VOCABULARY)), [4], [5]]


def test_dense_rows_of_drafts_with_vocabularies_of_other_sizes() -> None:
    chains = [
        Proposal(
            token_ids=[1],
            distributions=Distributions(
                dense=DenseDistributions(
                    probabilities=Tensor(
                        type=TENSOR_TYPE_FLOAT32,
                        shape=[1, width],
                        data=np.full((1, width), 1 / width, dtype=np.float32).tobytes(),
                    )
                )
            ),
        )
        for width in (2, VOCABULARY)
    ]
    for pair in (chains, chains[::-1]):
        for proposal in pair:
            check_mergeable(proposal, 8)
        decoded = as_drawn(merge_proposals(pair, 8).proposal)
        widths = [len(proposal.distributions.dense.probabilities.data) // 4 for proposal in pair]
        assert [row.probability(1) for row in decoded.rows] == pytest.approx([1 / width for width in widths])


def test_there_are_no_more_draws_than_a_target_judges() -> None:
    same_chain = Proposal(token_ids=[1], distributions=encode_counts([CountRow((1, 2), (TOTAL // 2, TOTAL // 2))]))
    merged = merge_proposals([same_chain] * 8, 1)
    assert list(merged.proposal.token_ids) == [1] and len(merged.proposal.draw_nodes) == 1
    assert len(merge_proposals([same_chain] * 12, 2).proposal.draw_nodes) == 8


SPARSE = encode_counts([CountRow((1, 2), (TOTAL // 2, TOTAL // 2))])


@pytest.mark.parametrize(
    ("problem", "proposal"),
    {
        "too long": Proposal(token_ids=[1] * 9),
        "no tree": Proposal(token_ids=[1, 2], parent_indices=[1, -1]),
        "other parents": Proposal(token_ids=[1, 2], parent_indices=[-1]),
        "a draw of nothing": Proposal(token_ids=[1], parent_indices=[-1], draw_nodes=[1], draw_rows=[0]),
        "draws without rows": Proposal(token_ids=[1], parent_indices=[-1], draw_nodes=[0], draw_rows=[]),
        "a token without a draw": Proposal(token_ids=[1, 2], parent_indices=[-1, 0], draw_nodes=[0], draw_rows=[0]),
        "a row too few": Proposal(token_ids=[1, 2], distributions=SPARSE),
        "a row that is left out": Proposal(
            token_ids=[1], parent_indices=[-1], draw_nodes=[0], draw_rows=[1], distributions=SPARSE
        ),
        "with replacement": Proposal(
            token_ids=[1, 2], parent_indices=[-1, -1], draw_nodes=[0, 1], draw_rows=[0, 0], distributions=SPARSE
        ),
        "sizes that lie": Proposal(
            token_ids=[1], distributions=Distributions(sparse=SparseDistributions(support_sizes=[2**31]))
        ),
        "a total too large": Proposal(
            token_ids=[1], distributions=Distributions(sparse=SparseDistributions(support_sizes=[0], total_log2=99))
        ),
        "a shape that lies": Proposal(
            token_ids=[1],
            distributions=Distributions(dense=DenseDistributions(probabilities=Tensor(shape=[2**31, 2**31]))),
        ),
        "no shape": Proposal(token_ids=[1], distributions=Distributions(dense=DenseDistributions())),
    }.items(),
)
def test_what_cannot_be_merged_is_refused(problem: str, proposal: Proposal) -> None:
    with pytest.raises(InvalidDistributionError):
        check_mergeable(proposal, 8)


def test_kinds_that_do_not_go_together_are_refused() -> None:
    tensor = Tensor(type=TENSOR_TYPE_FLOAT32, shape=[1, 2], data=b"\0" * 8)
    dense = Proposal(token_ids=[1], distributions=Distributions(dense=DenseDistributions(probabilities=tensor)))
    sparse = Proposal(token_ids=[1], distributions=SPARSE)
    other = Proposal(token_ids=[1])
    other.CopyFrom(sparse)
    other.distributions.sparse.total_log2 = 5
    for pair in ((dense, sparse), (sparse, other)):
        with pytest.raises(InvalidDistributionError):
            merge_proposals(pair, 8)
