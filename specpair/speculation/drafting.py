"""The draft's distributions and the tokens drawn from them.

A proposal is exact only if each token was drawn from exactly the distribution that is sent: the sampled x ~ q(x) of
Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", Algorithm 1. So the draft first brings
its row into the form that travels, integer counts on a small support, and draws from that with integers alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from specpair.speculation.largest import largest
from specpair.speculation.randomness import BITS

TOTAL_LOG2 = 24
"""Binary logarithm of the sum of the counts of a sparse row."""

MASS_CUT = 2.0**-8
"""Mass that a sparse row may leave out: the most that acceptance can lose by it."""

MAX_SUPPORT = 1024
"""Most tokens of a sparse row: 8 kB. Rows flatter than that lose more."""

SMALLEST_WEIGHT = 1e-250
"""Rows of weights without a larger one count as empty: beyond, scaling them would overflow."""

_FIRST_WIDTH = 128
"""Support that most rows fit into; the search for a larger one is paid only by batches that need it."""


class DraftRows(NamedTuple):
    """Distributions as verification sees them, whatever their encoding. Leading dimensions: [rows] or [B, K]."""

    token_ids: Tensor
    """[..., S] int64; each token at most once in a row, padding aside."""
    probabilities: Tensor
    """[..., S] float64; a row sums to 1. Padding has probability 0."""


class SparseRows(NamedTuple):
    """Distributions counts / 2^TOTAL_LOG2."""

    token_ids: Tensor
    """[N, S] int64, most likely first; padding has count 0."""
    counts: Tensor
    """[N, S] int64; a row sums to 2^TOTAL_LOG2."""

    def select(self, rows: Tensor | slice) -> "SparseRows":
        """The rows that an index [M] or a slice names."""
        return SparseRows(self.token_ids[rows], self.counts[rows])

    def to_draft_rows(self) -> DraftRows:
        return DraftRows(self.token_ids, self.counts.double() * 2.0**-TOTAL_LOG2)


def sparsify(probabilities: Tensor, *, mass_cut: float = MASS_CUT, max_support: int = MAX_SUPPORT) -> SparseRows:
    """Keeps the most likely tokens of rows [N, V] until at most `mass_cut` is left out, or `max_support` are kept.

    Counts are rounded down, a token without a count falls out, and what rounding left goes to the most likely
    token: at most S / 2^TOTAL_LOG2 of its mass. A one-hot row becomes one token with the full count.
    """
    values, mass, token_ids = _leading_tokens(probabilities, 1.0 - mass_cut, max_support)
    values = values.masked_fill(mass - values >= 1.0 - mass_cut, 0.0)
    counts = values.double().mul_(2.0**TOTAL_LOG2 / values.sum(-1, keepdim=True, dtype=torch.float64)).long()
    counts.select(-1, 0).add_((1 << TOTAL_LOG2) - counts.sum(-1))
    return SparseRows(token_ids, counts)


def draw_counts(rows: SparseRows, bits: Tensor) -> Tensor:
    """Token ids [N] drawn from sparse rows by `random_bits` [N]. Exact: 24 of the bits choose one of 2^24 counts."""
    chosen = (bits >> (BITS - TOTAL_LOG2))[:, None]
    index = torch.searchsorted(rows.counts.cumsum(-1), chosen, right=True)
    return rows.token_ids.gather(-1, index)[:, 0]


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Ids [N] drawn in proportion to weights [N, V] by uniforms [N] in [0, 1): inverse of the distribution function.

    The weights become integers, their largest about 2^61 / V, so that sums are exact, the same on every device, and
    no token of weight 0 can come out; relative to the largest, a weight is off by less than V / 2^60. One weight of a
    row must be above SMALLEST_WEIGHT; a row where none is, or one is NaN, gives some id below V.
    """
    width = weights.shape[-1]
    scale = 2.0 ** (61 - (width - 1).bit_length())
    factor = scale / weights.amax(-1, keepdim=True).double()
    cumulative = (weights * factor).long().cumsum_(-1)
    chosen = (uniforms[:, None] * cumulative[:, -1:]).long()  # below the total, as uniforms are at most 1 - 2^-53
    return torch.searchsorted(cumulative, chosen, right=True)[:, 0].clamp_max(width - 1)


def concatenate(rows: Sequence[SparseRows]) -> SparseRows:
    """All rows one after the other, padded to the widest support."""
    width = max(part.counts.shape[-1] for part in rows)
    return SparseRows(
        torch.cat([_widened(part.token_ids, width) for part in rows]),
        torch.cat([_widened(part.counts, width) for part in rows]),
    )


def stack_blocks(blocks: Sequence[DraftRows]) -> DraftRows:
    """Blocks of [K_b, S_b] as one [B, Kmax, Smax], padded with probability 0."""
    length = max(block.token_ids.shape[0] for block in blocks)
    width = max(block.token_ids.shape[1] for block in blocks)
    return DraftRows(
        torch.stack([_widened(block.token_ids, width, length) for block in blocks]),
        torch.stack([_widened(block.probabilities, width, length) for block in blocks]),
    )


def _leading_tokens(probabilities: Tensor, mass: float, max_support: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most likely tokens, enough for `mass` or `max_support`: values [N, S], their running sums, ids [N, S]."""
    limit = min(max_support, probabilities.shape[-1])
    values, token_ids = largest(probabilities, min(_FIRST_WIDTH, limit))
    sums = values.cumsum(-1, dtype=torch.float64)
    if values.shape[-1] < limit and not bool((sums[:, -1] >= mass).all()):
        values, token_ids = largest(probabilities, limit)
        sums = values.cumsum(-1, dtype=torch.float64)
    return values, sums, token_ids


def _widened(rows: Tensor, width: int, length: int | None = None) -> Tensor:
    """Rows [N, S] padded with zeros to [length or N, width]."""
    below = 0 if length is None else length - rows.shape[0]
    return pad(rows, (0, width - rows.shape[1], 0, below))
