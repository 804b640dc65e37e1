"""The draft's distributions in the form that verification uses, and draws from weights.

A proposal is exact only if each token was drawn from exactly the distribution that is sent: the sampled x ~ q(x) of
Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", Algorithm 1. So the draft first converts
its row to the form that is sent, integer counts on a small support (see `sparse_rows`) or dense float32, and draws from
that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specpair.native.library import quick_functions
from specpair.speculation.arrays import Array, first_above, largest_of, library, to_doubles, to_integers

SMALLEST_WEIGHT = 1e-250
"""Rows without a larger weight count as empty, because scaling them would overflow."""


class DraftRows(NamedTuple):
    """Distributions for verification, independent of their encoding. Leading dimensions: [rows] or [B, K]."""

    token_ids: Array
    """[..., S] int64; each token at most once in a row, except for padding."""
    probabilities: Array
    """[..., S] float64; a row sums to 1. Padding has probability 0."""
    drawn: Array
    """[...] float64: the probability of the token that was drawn from the row; infinite if the row is padding."""

    @property
    def width(self) -> int:
        """S."""
        return self.token_ids.shape[-1]

    @property
    def padded(self) -> "DraftRows":
        """Itself: what `CountedRows` have to make."""
        return self

    @property
    def byte_count(self) -> int:
        return self.token_ids.nbytes + self.probabilities.nbytes + self.drawn.nbytes

    def beginning(self, count: int) -> "DraftRows":
        """The first `count` rows."""
        return DraftRows(*(part[:count] for part in self))

    @classmethod
    def of(cls, token_ids: Array, probabilities: Array, drawn_tokens: Array) -> "DraftRows":
        """Looks up the drawn tokens' probabilities [...]; infinite for tokens with probability 0."""
        drawn = (probabilities * (token_ids == drawn_tokens[..., None])).sum(-1)
        return cls(token_ids, probabilities, library(drawn).where(drawn > 0, drawn, np.inf))


def stack_blocks(blocks: Sequence[DraftRows]) -> DraftRows:
    """Stacks numpy blocks [K_b, S_b] to one [B, Kmax, Smax], padded with probability 0."""
    if len(blocks) == 1:
        return DraftRows(*(part[None] for part in blocks[0]))
    shape = len(blocks), *(max(block.token_ids.shape[axis] for block in blocks) for axis in (0, 1))
    stacked = DraftRows(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.full(shape[:2], np.inf))
    for index, block in enumerate(blocks):
        length, width = block.token_ids.shape
        stacked.token_ids[index, :length, :width] = block.token_ids
        stacked.probabilities[index, :length, :width] = block.probabilities
        stacked.drawn[index, :length] = block.drawn
    return stacked


def draw(weights: Array, uniforms: Array) -> Array:
    """Draws ids [N] in proportion to weights [N, V] by uniforms [N] in [0, 1), by inversion of the cumulative sum.

    Weights are scaled to integers, the largest to about 2^61 / V. So sums are exact and the same on every device, and a
    token of weight 0 is never drawn. Relative to the largest, a weight is off by less than V / 2^60. One weight of a
    row must be above SMALLEST_WEIGHT; a row where none is, or one is NaN, gives some id below V.
    """
    if (drawn := _draw_natively(weights, uniforms)) is not None:
        return drawn
    scale = 2.0 ** (61 - (weights.shape[1] - 1).bit_length())
    with np.errstate(all="ignore"):
        factors = scale / to_doubles(largest_of(weights))
        cumulative = to_integers(weights * factors[:, None]).cumsum(-1)
        chosen = to_integers(uniforms * cumulative[:, -1])  # below the total, as uniforms are at most 1 - 2^-53
        return first_above(cumulative, chosen)


def _draw_natively(weights: Array, uniforms: Array) -> np.ndarray | None:
    """`draw` for float64 rows in numpy by the compiled library; None if it is not loaded, or they are others."""
    if not isinstance(weights, np.ndarray) or weights.dtype != np.float64 or not weights.flags.c_contiguous:
        return None
    if (functions := quick_functions()) is None:
        return None
    first, width = weights.ctypes.data, weights.shape[1]
    rows = [first + row * width * weights.itemsize for row in range(len(weights))]
    pairs = zip(rows, uniforms.tolist(), strict=True)
    return np.array([functions.specpair_draw(row, width, uniform) for row, uniform in pairs], dtype=np.int64)
