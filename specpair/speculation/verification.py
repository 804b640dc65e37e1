"""Which draft tokens count, and what the target says instead of the first that does not.

Token rule: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", Algorithm 1; Stratos,
"Speculative Decoding", section 1.1. Block rule: Sun et al., "Block Verification Accelerates Speculative Decoding"
(2024), Algorithm 2. Both leave the output distributed as the target's own; greedy decoding is the case of a one-hot
target row. Here p is `target` and q is `draft`, as in Leviathan et al.

Shapes: B sequences; sequence b has K_b draft tokens and K_b + 1 rows of the target; K is the largest K_b, S the widest
support of the draft, V the vocabulary. Random draws are keyed by step (see `randomness`), and a block must never be
shortened because of a token that was drawn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from specpair.options import Rule
from specpair.speculation.drafting import SMALLEST_WEIGHT, DraftRows, draw
from specpair.speculation.lenience import Lenience, lenient_ratios


class Block(NamedTuple):
    """B proposals of different lengths, padded to K."""

    tokens: Tensor
    """[B, K] int64; padding is any valid id."""
    lengths: Tensor
    """[B] int64: K_b, 0 allowed."""
    draft: DraftRows
    """[B, K, S]: what each token was drawn from. Padding has probability 0 throughout."""
    judged_whole: Tensor
    """[B] bool: block rule, else token rule."""
    lenience: Lenience | None = None
    """For the token rule; None is exact."""


class Thresholds(NamedTuple):
    """What the rules make of a block before any random number is drawn."""

    acceptance: Tensor
    """[B, K] float64: h_i, the probability that decides on draft token i. 0 for padding."""
    scales: Tensor
    """[B, K + 1] float64: what multiplies the target's row in the residual after n accepted tokens, n = 0 .. K."""


class Verdicts(NamedTuple):
    """What a round commits: the accepted tokens, then the next token."""

    accepted_counts: Tensor
    """[B] int64, at most K_b."""
    next_tokens: Tensor
    """[B] int64: a correction, or a bonus token if all were accepted."""


def verify(
    target: Tensor,
    draft_tokens: Tensor,
    lengths: Tensor,
    draft: DraftRows,
    rules: Sequence[Rule],
    accept_uniforms: Tensor,
    next_uniforms: Tensor,
    lenience: Lenience | None = None,
) -> Verdicts:
    """Judges a batch of blocks in one pass.

    `target` holds the rows of all sequences one after the other, [sum of (K_b + 1), V], normalised, float32 or wider.
    `draft_tokens` [B, K], `lengths` [B] and `draft` [B, K, S] are padded to K; so are `accept_uniforms` [B, K].
    `next_uniforms` is [B]. Uniforms are in [0, 1). Everything is on one device, and so is the result.
    """
    judged_whole = torch.tensor([rule is Rule.BLOCK for rule in rules], device=target.device)
    block = Block(draft_tokens, lengths, draft, judged_whole, lenience)
    thresholds = acceptance_thresholds(target, block)
    accepted_counts = count_accepted(thresholds.acceptance, block, accept_uniforms)
    weights = residual_weights(target, block, thresholds, accepted_counts)
    return Verdicts(accepted_counts, draw(weights, next_uniforms))


def acceptance_thresholds(target: Tensor, block: Block) -> Thresholds:
    """Thresholds of `target` [sum of (K_b + 1), V], for each sequence by its own rule."""
    positions = torch.arange(block.tokens.shape[1], device=target.device)
    # Padding reads the sequence's own last row; its ratios are 0, because the draft gives it no probability.
    rows = first_rows(block.lengths)[:, None] + torch.minimum(positions, block.lengths[:, None])
    offsets = rows * target.shape[1]
    ratios = _ratios(target.take(offsets + block.tokens), block)
    joint = _joint_probabilities(ratios)
    overlaps = _overlaps(target.take(offsets[..., None] + block.draft.token_ids), block, joint)
    whole = _block_thresholds(joint, overlaps)
    judged_whole = block.judged_whole[:, None]
    single = ratios if block.lenience is None else lenient_ratios(ratios, block.lenience)
    return Thresholds(
        torch.where(judged_whole, whole, single.clamp_max(1.0)),
        torch.where(judged_whole, joint, torch.ones_like(joint)),
    )


def count_accepted(acceptance: Tensor, block: Block, uniforms: Tensor) -> Tensor:
    """Accepted counts [B] from thresholds [B, K] and uniforms [B, K].

    Token rule: tokens before the first u_i >= h_i. Block rule: the last i with u_i < h_i. The comparison is strict, so
    that a threshold of 0 is never met.
    """
    accepted = (uniforms < acceptance).long()
    ordinals = torch.arange(1, accepted.shape[1] + 1, device=accepted.device)
    leading = accepted.cumprod(-1).sum(-1)
    last = (accepted * ordinals).max(-1).values if accepted.shape[1] else leading
    return torch.where(block.judged_whole, last, leading)


def residual_weights(target: Tensor, block: Block, thresholds: Thresholds, accepted_counts: Tensor) -> Tensor:
    """What the next token is drawn from: max(scale * p - q, 0) [B, V] float64, not normalised.

    p and q are the rows after n = accepted_counts tokens. After a whole block there is no q: the bonus token comes from
    the last row of the target. A residual without mass, which only rounding can leave, gives way to the target's row.
    """
    rows = target.index_select(0, first_rows(block.lengths) + accepted_counts)
    longest = block.tokens.shape[1]
    if longest == 0:
        return rows.double()
    rejected = torch.arange(len(rows), device=rows.device) * longest + accepted_counts.clamp_max(longest - 1)
    draft_mass = block.draft.probabilities.flatten(0, 1).index_select(0, rejected)
    draft_mass = draft_mass * (accepted_counts < block.lengths)[:, None]
    support = block.draft.token_ids.flatten(0, 1).index_select(0, rejected)
    weights = rows * thresholds.scales.gather(-1, accepted_counts[:, None])
    # max(a - b, 0) = a - min(a, b): what is subtracted is 0 outside the support, and padding subtracts nothing.
    weights.scatter_add_(-1, support, -torch.minimum(weights.gather(-1, support), draft_mass))
    return torch.where(weights.amax(-1, keepdim=True) > SMALLEST_WEIGHT, weights, rows)


def first_rows(lengths: Tensor) -> Tensor:
    """Index [B] of each sequence's first row among packed rows of K_b + 1 each."""
    counts = lengths + 1
    return counts.cumsum(-1) - counts


def _ratios(target_mass: Tensor, block: Block) -> Tensor:
    """p(x) / q(x) [B, K] of the draft tokens; 0 where q is 0, which an honest draft cannot send."""
    others = block.draft.token_ids != block.tokens[..., None]
    draft_mass = block.draft.probabilities.masked_fill(others, 0.0).sum(-1)
    return (target_mass / draft_mass).masked_fill_(draft_mass == 0, 0.0)


def _joint_probabilities(ratios: Tensor) -> Tensor:
    """P_0 .. P_K [B, K + 1]: P_0 = 1 and P_i = min(1, P_{i-1} r_i).

    Without a loop: the product of r_1 .. r_i over the largest such product so far, P_0 included. As logarithms,
    because products of ratios can overflow.
    """
    products = pad(ratios.log().cumsum(-1), (1, 0))
    return (products - products.cummax(-1).values).exp()


def _overlaps(target_mass: Tensor, block: Block, joint: Tensor) -> Tensor:
    """sum_x min(P_{i-1} p_i(x), q_i(x)) [B, K] for i = 1 .. K, from p on the draft's support [B, K, S]."""
    return torch.minimum(target_mass * joint[:, :-1, None], block.draft.probabilities).sum(-1)


def _block_thresholds(joint: Tensor, overlaps: Tensor) -> Tensor:
    """h_1 .. h_K [B, K]: h_i = S / (S + 1 - P_i) with S = sum_x max(P_i p_{i+1} - q_{i+1}, 0), and h_K = P_K.

    S is P_i - sum_x min(P_i p, q), since p sums to 1; there is no q_{K+1}, so there S is P_K and the formula gives P_K
    by itself. 0 / 0 counts as 1: then P_i is 1 and nothing can be lost.
    """
    here = joint[:, 1:]
    residual = (here - pad(overlaps[:, 1:], (0, 1))).clamp_min(0.0)
    missing = 1.0 - here
    return (residual / (residual + missing)).masked_fill_(missing == 0, 1.0)
