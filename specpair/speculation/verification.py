"""Verification: which draft tokens are accepted, and the target's next token.

Token rule: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", Algorithm 1; Stratos,
"Speculative Decoding", section 1.1. Block rule: Sun et al., "Block Verification Accelerates Speculative Decoding"
(2024), Algorithm 2. Both leave the output distributed as the target's own; greedy decoding is the case of a one-hot
target row. p is `target` and q is `draft`, as in Leviathan et al.

Shapes: B sequences; sequence b has K_b draft tokens and K_b + 1 rows of the target; K is the largest K_b, S the widest
support of the draft, V the vocabulary. Random draws are keyed by step (see `randomness`), and a block must never be
shortened because of a token that was drawn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specpair.options import Rule
from specpair.speculation.arrays import (
    Array,
    at_least,
    at_most,
    counting,
    empty,
    largest_of,
    library,
    may_be_set,
    running_largest,
)
from specpair.speculation.draft_rows import SMALLEST_WEIGHT, DraftRows
from specpair.speculation.lenience import Lenience, lenient_ratios
from specpair.speculation.own_token import draw_own


class Block(NamedTuple):
    """B proposals of different lengths, padded to K."""

    tokens: Array
    """[B, K] int64; padding is any valid id."""
    lengths: Array
    """[B] int64: K_b, 0 allowed."""
    draft: DraftRows
    """[B, K, S]: the distributions from which the tokens were drawn. Padding has probability 0 throughout."""
    rows: Array
    """[B, K] int64: the target's row that judges each token; for padding the sequence's own last one."""
    rule: Rule
    """Block or token rule."""
    lenience: Lenience | None = None
    """For the token rule; None is exact."""


class Thresholds(NamedTuple):
    """The quantities that the rules compute before any random number is used."""

    acceptance: Array
    """[B, K] float64: h_i, the acceptance threshold of draft token i. 0 for padding."""
    scales: Array
    """[B, K + 1] float64: the factor of the target's row in the residual after n accepted tokens, n = 0 .. K."""


class Judgement(NamedTuple):
    """The result of verification: the accepted tokens, then the next token."""

    accepted_counts: Array
    """[B] int64, at most K_b."""
    next_tokens: Array
    """[B] int64: a correction, or a bonus token if all were accepted."""


def verify(target: Array, block: Block, accept_uniforms: Array, seeds: Array, steps: Array) -> Judgement:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V], normalised, float32 or wider.
    `accept_uniforms` [B, K] are in [0, 1). `seeds` and `steps` [B] key the noise of the next tokens (`draw_own`). All
    are numpy arrays, or tensors on one device, and so is the result.
    """
    if block.tokens.shape[1] == 0:
        return Judgement(block.lengths, draw_own(target, seeds, steps))
    with np.errstate(all="ignore"):  # rows that are not finite may give any result
        thresholds = acceptance_thresholds(target, block)
        accepted_counts = count_accepted(thresholds.acceptance, block, accept_uniforms)
        weights = residual_weights(target, block, thresholds, accepted_counts)
        return Judgement(accepted_counts, draw_own(weights, seeds, steps))


def acceptance_thresholds(target: Array, block: Block) -> Thresholds:
    """Thresholds of `target` [sum of (K_b + 1), V]; K is at least 1."""
    xp = library(target)
    offsets = block.rows * target.shape[1]
    ratios = xp.take(target, offsets + block.tokens) / block.draft.drawn
    scales = empty((len(ratios), ratios.shape[1] + 1), target)
    scales[:] = 1.0
    if block.rule is Rule.TOKEN:
        single = ratios if block.lenience is None else lenient_ratios(ratios, block.lenience)
        return Thresholds(at_most(single, 1.0), scales)
    scales[:, 1:] = joint = _joint_probabilities(ratios)
    overlaps = _overlaps(xp.take(target, offsets[:, 1:, None] + block.draft.token_ids[:, 1:]), block, joint)
    return Thresholds(_block_thresholds(joint, overlaps), scales)


def count_accepted(acceptance: Array, block: Block, uniforms: Array) -> Array:
    """Accepted counts [B] from thresholds [B, K] and uniforms [B, K].

    Token rule: the tokens before the first u_i >= h_i. Block rule: the last i with u_i < h_i. The comparison is strict,
    so that a threshold of 0 never accepts. Padding is never accepted, whatever its threshold: lenience gives it any.
    """
    places = counting(acceptance.shape[1], acceptance)
    accepted = (uniforms < acceptance) & (places < block.lengths[:, None])
    if block.rule is Rule.TOKEN:
        return accepted.cumprod(-1).sum(-1)
    return largest_of(accepted * (places + 1))


def residual_weights(target: Array, block: Block, thresholds: Thresholds, accepted_counts: Array) -> Array:
    """The residual, from which the next token is drawn: max(scale * p - q, 0) [B, V] float64, not normalised.

    p and q are the rows after n = accepted_counts tokens. After a whole block there is no q: the bonus token comes from
    the target's last row. If the residual has no mass, which only rounding can cause, the target's row replaces it.
    """
    xp, width = library(target), target.shape[1]
    sequences = counting(len(accepted_counts), target)
    rows = block.rows[:, 0] + accepted_counts
    is_rejected = accepted_counts < block.lengths
    scales = xp.where(is_rejected, thresholds.scales[sequences, accepted_counts], 1.0)[:, None]
    positions = accepted_counts * is_rejected
    support = block.draft.token_ids[sequences, positions]
    draft_mass = block.draft.probabilities[sequences, positions] * is_rejected[:, None]
    weights = empty((len(rows), width + 1), target)
    weights[:, :width] = target[rows] * scales
    weights[:, width] = 1.0  # for padding
    flat = weights.reshape(-1)
    places = (sequences * (width + 1))[:, None] + xp.where(draft_mass > 0, support, width)
    # max(a - b, 0) = a - min(a, b): the deduction is 0 outside the support.
    taken = xp.minimum(flat[places], draft_mass)
    flat[places] -= taken
    is_empty = largest_of(weights[:, :width]) <= SMALLEST_WEIGHT
    if may_be_set(is_empty):
        flat[places] += taken * is_empty[:, None]
    return weights[:, :width]


def packed_rows(lengths: Sequence[int], most: int) -> np.ndarray:
    """`Block.rows` [B, most] for proposals of these lengths; `most` is at least their maximum and at least 1."""
    rows: list[list[int]] = []
    start = 0
    for length in lengths:
        last = start + length
        rows.append([*range(start, last), *[last] * (most - length)])
        start = last + 1
    return np.array(rows)


def _joint_probabilities(ratios: Array) -> Array:
    """P_1 .. P_K [B, K] of ratios p(x) / q(x) [B, K]: P_0 = 1 and P_i = min(1, P_{i-1} r_i).

    Computed without a loop: the product of r_1 .. r_i divided by the largest such product so far, including P_0. Uses
    logarithms, because products of ratios can overflow.
    """
    xp = library(ratios)
    products = xp.log(ratios).cumsum(-1)
    return xp.exp(products - at_least(running_largest(products), 0.0))


def _overlaps(target_mass: Array, block: Block, joint: Array) -> Array:
    """sum_x min(P_{i-1} p_i(x), q_i(x)) [B, K - 1] for i = 2 .. K, from p on the draft's support [B, K - 1, S].

    Uses a running sum: padding to the widest support adds only zeros, which do not change its last bit.
    """
    shared = library(joint).minimum(target_mass * joint[:, :-1, None], block.draft.probabilities[:, 1:])
    return shared.cumsum(-1)[..., -1]


def _block_thresholds(joint: Array, overlaps: Array) -> Array:
    """h_1 .. h_K [B, K]: h_i = S / (S + 1 - P_i) with S = sum_x max(P_i p_{i+1} - q_{i+1}, 0), and h_K = P_K.

    S is P_i - sum_x min(P_i p, q), since p sums to 1. There is no q_{K+1}, so for i = K S is P_K and the formula gives
    P_K. 0 / 0 counts as 1: then P_i is 1 and nothing can be lost.
    """
    residual = joint + 0.0
    residual[:, :-1] = at_least(joint[:, :-1] - overlaps, 0.0)
    whole = residual + (1.0 - joint)
    is_nothing = whole == 0
    return (residual + is_nothing) / (whole + is_nothing)
