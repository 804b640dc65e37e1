"""Merges the proposals of several drafts into one: a tree in which chains share their beginnings.

SpecInfer (Miao et al. 2024; Stratos, "Speculative Decoding", section 2.1). Rows of distributions stay the bytes that
they are, so nothing is rounded and nothing is decoded. Below one token the first draft's draws come first, then the
second's: an order that no token decides. Every draw is kept, unless there is no room for a draft's next token; that is
decided before the token is looked at (docs/exactness.md, rule 8).
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specpair.errors import InvalidDistributionError
from specpair.speculation.trees.depths import depths
from specpair.speculation.trees.token_tree import ROOT
from specpair.v1.proposal_pb2 import (
    TENSOR_TYPE_FLOAT32,
    DenseDistributions,
    Distributions,
    Proposal,
    SparseDistributions,
    Tensor,
)
from specpair.wire.limits import DRAWS_PER_TOKEN, MAX_TOTAL_LOG2

_UINT32 = 4


@dataclass(frozen=True, kw_only=True)
class Merged:
    """One proposal made of several."""

    proposal: Proposal
    nodes: tuple[tuple[int, ...], ...]
    """For each of the several, the tokens of `proposal` that are its own, by their indices. One may be of many."""


def merge_proposals(proposals: Sequence[Proposal], max_nodes: int) -> Merged:
    """The tree of at most `max_nodes` tokens. A proposal that is alone stays as it is.

    Raises InvalidDistributionError if their distributions do not go together: `check_mergeable` says so of each.
    """
    held = [i for i, proposal in enumerate(proposals) if proposal.token_ids]
    if len(held) == 1 and len(proposals[held[0]].token_ids) <= max_nodes:
        own = tuple(range(len(proposals[held[0]].token_ids)))
        return Merged(proposal=proposals[held[0]], nodes=tuple(own if i in held else () for i in range(len(proposals))))
    tree = _Tree(rows=_rows_for([proposals[i] for i in held]))
    nodes = tuple(tuple(dict.fromkeys(tree.add(proposal, max_nodes))) for proposal in proposals)
    return Merged(proposal=tree.proposal(), nodes=nodes)


def check_mergeable(proposal: Proposal, max_nodes: int) -> None:
    """Raises InvalidDistributionError if it cannot be merged: it is too long, or no tree, or its parts do not fit."""
    count, parents = len(proposal.token_ids), proposal.parent_indices
    if count > max_nodes:
        raise InvalidDistributionError("proposal", f"has more than {max_nodes} tokens", limit=max_nodes)
    if parents and (len(parents) != count or any(not ROOT <= parent < i for i, parent in enumerate(parents))):
        raise InvalidDistributionError("proposal.parent_indices", "make no tree")
    draws = _draws(proposal)
    if any(node >= count for node, _ in draws) or len(proposal.draw_nodes) != len(proposal.draw_rows):
        raise InvalidDistributionError("proposal.draw_nodes", "name tokens that do not exist")
    if {node for node, _ in draws} != set(range(count)):
        raise InvalidDistributionError("proposal.draw_nodes", "do not give every token")
    rows = [row for _, row in draws]
    if len(set(rows)) < len(rows) and not proposal.draws_without_replacement:
        raise InvalidDistributionError("proposal.draw_nodes", "are with replacement, which is not merged")
    own = _rows_for([proposal])
    if own is not None and own.count_of(proposal) != len(set(rows)):
        raise InvalidDistributionError("proposal.distributions", "do not have a row for each number in draw_rows")
    if sorted(set(rows)) != list(range(len(set(rows)))):
        raise InvalidDistributionError("proposal.draw_rows", "leave out a row")


def _draws(proposal: Proposal) -> list[tuple[int, int]]:
    """The draws, as tokens and rows; for a chain, and for a tree without rows, one for each token."""
    if proposal.draw_nodes:
        return list(zip(proposal.draw_nodes, proposal.draw_rows, strict=False))
    if not proposal.parent_indices or not _has_rows(proposal):
        return [(node, node) for node in range(len(proposal.token_ids))]
    rows: dict[int, int] = {}
    for parent in sorted(proposal.parent_indices):
        rows.setdefault(parent, len(rows))
    return [(node, rows[parent]) for node, parent in enumerate(proposal.parent_indices)]


def _has_rows(proposal: Proposal) -> bool:
    return proposal.distributions.WhichOneof("encoding") in ("sparse", "dense")


@dataclass
class _Tree:
    """A tree that grows by one proposal after the other."""

    rows: "_SparseRows | _DenseRows | None"
    """Where the rows go; None if all proposals were certain, or need none."""
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    draws: list[tuple[int, int]] = field(default_factory=list)
    row_count: int = 0
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, proposal: Proposal, max_nodes: int) -> Iterator[int]:
        """Adds the draws of a proposal, parents first; yields the tokens that they gave, here."""
        tokens, parents = proposal.token_ids, proposal.parent_indices or range(ROOT, len(proposal.token_ids) - 1)
        depth_of = depths(parents)
        places, rows = {ROOT: ROOT}, dict[int, int]()
        for node, row in sorted(_draws(proposal), key=lambda draw: depth_of[draw[0]]):  # stable: siblings stay in order
            if len(self.tokens) >= max_nodes or len(self.draws) >= DRAWS_PER_TOKEN * max_nodes:
                return
            if row not in rows:
                rows[row] = self._take_row(proposal, row, tokens[node])
            places[node] = self._add_draw(places[parents[node]], tokens[node], rows[row])
            yield places[node]

    def proposal(self) -> Proposal:
        if self.rows is None:
            return Proposal(token_ids=self.tokens, parent_indices=self.parents)
        return Proposal(
            token_ids=self.tokens,
            parent_indices=self.parents,
            distributions=self.rows.distributions(),
            draw_nodes=[node for node, _ in self.draws],
            draw_rows=[row for _, row in self.draws],
            draws_without_replacement=True,
        )

    def _take_row(self, proposal: Proposal, row: int, token: int) -> int:
        if self.rows is not None:
            self.rows.take(proposal, row, token)
        self.row_count += 1
        return self.row_count - 1

    def _add_draw(self, parent: int, token: int, row: int) -> int:
        node = self._nodes.setdefault((parent, token), len(self.tokens))
        if node == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
        self.draws.append((node, row))
        return node


def _rows_for(proposals: Sequence[Proposal]) -> "_SparseRows | _DenseRows | None":
    """Where the rows of these go. Raises InvalidDistributionError if they are of different kinds."""
    kinds = {proposal.distributions.WhichOneof("encoding") for proposal in proposals} - {None, "one_hot"}
    if not kinds:
        return None
    if kinds == {"sparse"}:
        own = [p.distributions.sparse for p in proposals if p.distributions.WhichOneof("encoding") == "sparse"]
        if len({rows.total_log2 for rows in own}) > 1:
            raise InvalidDistributionError("proposal.distributions.sparse.total_log2", "differs between the drafts")
        return _SparseRows(own[0].total_log2)
    if kinds == {"dense"}:
        shapes = [list(p.distributions.dense.probabilities.shape) for p in proposals if _has_rows(p)]
        if any(len(shape) != 2 for shape in shapes):
            raise InvalidDistributionError("proposal.distributions.dense", "have no rows")
        return _DenseRows(max(shape[1] for shape in shapes))
    raise InvalidDistributionError("proposal.distributions", "are of kinds that do not go together")


class _SparseRows:
    """Rows of counts, collected as bytes."""

    def __init__(self, total_log2: int) -> None:
        self._total_log2 = total_log2
        self._sizes: list[int] = []
        self._token_ids: list[bytes] = []
        self._counts: list[bytes] = []

    def count_of(self, proposal: Proposal) -> int:
        """The number of rows of a proposal. Raises InvalidDistributionError if its parts do not fit together."""
        rows = proposal.distributions.sparse
        size = _UINT32 * sum(rows.support_sizes)
        if rows.total_log2 > MAX_TOTAL_LOG2 or len(rows.token_ids) != size or len(rows.counts) != size:
            raise InvalidDistributionError("proposal.distributions.sparse", "has parts of different sizes")
        return len(rows.support_sizes)

    def take(self, proposal: Proposal, row: int, token: int) -> None:
        """Takes a row. A draft that was certain sends none: all mass is on the token then."""
        if not _has_rows(proposal):
            return self._add(struct.pack("<I", token), struct.pack("<I", 1 << self._total_log2))
        rows = proposal.distributions.sparse
        start, size = sum(rows.support_sizes[:row]), rows.support_sizes[row]
        piece = slice(_UINT32 * start, _UINT32 * (start + size))
        self._add(rows.token_ids[piece], rows.counts[piece])

    def distributions(self) -> Distributions:
        sparse = SparseDistributions(
            support_sizes=self._sizes,
            token_ids=b"".join(self._token_ids),
            counts=b"".join(self._counts),
            total_log2=self._total_log2,
        )
        return Distributions(sparse=sparse)

    def _add(self, token_ids: bytes, counts: bytes) -> None:
        self._sizes.append(len(token_ids) // _UINT32)
        self._token_ids.append(token_ids)
        self._counts.append(counts)


class _DenseRows:
    """Rows of probabilities, collected as bytes. A draft whose vocabulary is smaller gives the other tokens none."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[bytes] = []

    def count_of(self, proposal: Proposal) -> int:
        """The number of rows of a proposal. Raises InvalidDistributionError if its parts do not fit together."""
        rows = proposal.distributions.dense.probabilities
        if len(rows.data) != rows.shape[0] * self._row_bytes:
            raise InvalidDistributionError("proposal.distributions.dense", "has parts of different sizes")
        return rows.shape[0]

    def take(self, proposal: Proposal, row: int, token: int) -> None:
        """Takes a row. A draft that was certain sends none: all mass is on the token then."""
        if not _has_rows(proposal):
            if token >= self._width:
                raise InvalidDistributionError("proposal.token_ids", f"holds {token}; rows have {self._width} tokens")
            data = bytearray(self._row_bytes)
            struct.pack_into("<f", data, _UINT32 * token, 1.0)
            self._rows.append(bytes(data))
            return
        rows = proposal.distributions.dense.probabilities
        own_bytes = _UINT32 * rows.shape[1]
        self._rows.append(rows.data[row * own_bytes : (row + 1) * own_bytes].ljust(self._row_bytes, b"\0"))

    def distributions(self) -> Distributions:
        tensor = Tensor(type=TENSOR_TYPE_FLOAT32, shape=[len(self._rows), self._width], data=b"".join(self._rows))
        return Distributions(dense=DenseDistributions(probabilities=tensor))

    @property
    def _row_bytes(self) -> int:
        return _UINT32 * self._width
