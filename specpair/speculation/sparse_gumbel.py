"""The choice of `gumbel` among a few tokens: the same noise, without a row over the vocabulary."""

from collections.abc import Sequence
from math import inf, log1p

from specpair.speculation.randomness import BITS, Domain, draw_bits, random_words

LANE_BITS = 16
"""Upper bits of a uniform; a word has four such lanes."""

LANES = 64 // LANE_BITS
"""Tokens that share a word."""


def choose_among(token_ids: Sequence[int], weights: Sequence[float], seed: int, position: int) -> int:
    """The choice of `gumbel.choose` for a row with weights [S] at these tokens and 0 elsewhere; one must be above 0.

    As there, the upper bits of the noise leave one or two tokens, and the lower bits are drawn only for those.
    """
    if len(token_ids) == 1:
        return token_ids[0]
    racing = [(token, weight, _lane(token, seed, position)) for token, weight in zip(token_ids, weights, strict=True)]
    latest = min(_time(lane + 1, LANE_BITS, weight) for _, weight, lane in racing)
    leading = [entry for entry in racing if _time(entry[2], LANE_BITS, entry[1]) <= latest]
    if len(leading) == 1:
        return leading[0][0]
    return min(leading, key=lambda entry: _arrival(*entry, seed, position))[0]


def _lane(token: int, seed: int, position: int) -> int:
    """The upper bits of a token's uniform."""
    word = random_words(seed, Domain.GUMBEL, position, token // LANES, 1)[0]
    return (int(word) >> (LANE_BITS * (token % LANES))) & (2**LANE_BITS - 1)


def _arrival(token: int, weight: float, lane: int, seed: int, position: int) -> float:
    lower = draw_bits(seed, Domain.GUMBEL_LOWER, position, token) >> LANE_BITS
    return max(_time((lane << (BITS - LANE_BITS)) | lower, BITS, weight), 2.0 ** -(BITS + 1) / weight)


def _time(upper: int, bits: int, weight: float) -> float:
    """Arrival time of a token whose uniform is upper / 2^bits."""
    if weight == 0.0 or upper == 1 << bits:
        return inf
    return -log1p(-upper * 2.0**-bits) / weight
