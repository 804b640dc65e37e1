"""Lenience: accepts more draft tokens than is exact. LOSSY: the output is no longer the target's own.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", appendix A.5. Sampled: q is multiplied by
the lenience before it is compared with p, so a token comes at most 1 / lenience times as often as it should. (The
residual stays max(p - q, 0), which keeps this bound.) Greedy: a token is accepted if its probability, before the
temperature, is at least lenience times the highest one; the paper's inequality sign is the wrong way round.
"""

from typing import NamedTuple

from specpair.speculation.arrays import Array, library


class Lenience(NamedTuple):
    """How lenient each of B sequences is; 1 is exact."""

    factors: Array
    """[B] float64, in (0, 1]."""
    greedy: Array
    """[B] bool."""
    closeness: Array
    """[B, K] float64: probability of each draft token relative to the highest; padding has any value."""


def lenient_ratios(ratios: Array, lenience: Lenience) -> Array:
    """Replaces the ratios p / q [B, K] in the token rule."""
    xp = library(ratios)
    factors = lenience.factors[:, None]
    greedy = xp.where(factors < 1.0, (lenience.closeness >= factors) * 1.0, ratios)
    return xp.where(lenience.greedy[:, None], greedy, ratios / factors)


def closeness(logits: Array, rows: Array, draft_tokens: Array) -> Array:
    """p(x) / max p [B, K] float64 of draft tokens [B, K], whose rows of logits [R, V] are `rows` [B, K]."""
    xp = library(logits)
    return xp.exp(xp.asarray(logits[rows, draft_tokens] - xp.amax(logits, -1)[rows], dtype=xp.float64))
