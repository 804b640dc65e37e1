"""Encodes proposals that are trees of tokens, and decodes them.

Received messages are not trusted: any mistake raises an error that names the field.
"""

from collections.abc import Sequence

import numpy as np

from specpair.errors import InvalidDistributionError
from specpair.speculation.count_row import CountRow
from specpair.speculation.counted_rows import SentRows
from specpair.speculation.trees.drawn_tree import Draw, DrawnTree, Row
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from specpair.v1.proposal_pb2 import Proposal
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import decode


def encode_tree(tree: TokenTree, counts: Sequence[CountRow] = (), draws: Sequence[Draw] = ()) -> Proposal:
    """A tree with the rows and the draws, without replacement, that gave it; without them, one for the coupled rule or
    a greedy target."""
    return Proposal(
        token_ids=tree.tokens,
        parent_indices=tree.parents,
        distributions=encode_counts(counts) if counts else None,
        draw_nodes=[draw.node for draw in draws],
        draw_rows=[draw.row for draw in draws],
        draws_without_replacement=bool(draws),
    )


def decode_tree(proposal: Proposal, vocab_size: int) -> tuple[TokenTree, DrawnTree | None]:
    """The tree, and how it was drawn; None if each token was its drafter's only choice: no distributions come then.

    Raises InvalidFieldError or InvalidDistributionError.
    """
    tree = TokenTree(tokens=tuple(proposal.token_ids), parents=tuple(proposal.parent_indices))
    if proposal.distributions.WhichOneof("encoding") in (None, "one_hot"):
        decode(None, list(tree.tokens), vocab_size)  # checks the ids
        return tree, None
    draws = _draws(proposal, tree)
    firsts: dict[int, int] = {}
    for node, row in draws:
        firsts.setdefault(row, node)
    if sorted(firsts) != list(range(len(firsts))):
        raise InvalidDistributionError("proposal.draw_rows", "leave out a row")
    drawn_tokens = [tree.tokens[firsts[row]] for row in range(len(firsts))]
    rows = _rows(decode(proposal.distributions, drawn_tokens, vocab_size), not proposal.draws_without_replacement)
    decode(None, list(tree.tokens), vocab_size)
    return tree, DrawnTree(tree=tree, rows=rows, draws=tuple(draws))


def _draws(proposal: Proposal, tree: TokenTree) -> list[Draw]:
    nodes, rows = proposal.draw_nodes, proposal.draw_rows
    if len(nodes) != len(rows):
        raise InvalidDistributionError("proposal.draw_rows", f"has {len(rows)} entries for {len(nodes)} draws")
    if not nodes:
        owners = [node for node in range(ROOT, len(tree)) if tree.children(node)]
        return [Draw(child, row) for row, node in enumerate(owners) for child in tree.children(node)]
    if (worst := max(nodes)) >= len(tree):
        raise InvalidDistributionError("proposal.draw_nodes", f"holds {worst}; the tree has {len(tree)} tokens")
    return [Draw(node, row) for node, row in zip(nodes, rows, strict=True)]


def _rows(decoded: SentRows, replaces: bool) -> tuple[Row, ...]:
    """Rows without their padding."""
    held: list[Row] = []
    for token_ids, probabilities in zip(decoded.token_ids, decoded.probabilities, strict=True):
        is_held = np.asarray(probabilities > 0)
        held.append(Row(np.asarray(token_ids[is_held], dtype=np.int64), np.asarray(probabilities[is_held]), replaces))
    return tuple(held)
