"""Choosing with Gumbel noise that draft and target share: argmax of log p(x) + g(x) is distributed as p.

The noise g of a token is a pure function of (seed, position, token), so two distributions that are alike choose alike:
they differ with probability at most 2 TV / (1 + TV) (Daliri et al. 2024, "Coupling without Communication and
Drafter-Invariant Speculative Decoding"). Nothing needs to travel but the tokens.

The noise is made top-down, so that most of it is never computed. Tokens stand in groups of 64. The largest of 64 Gumbel
variables is Gumbel too, moved by log 64, and falls on each of them alike; the others are Gumbel below it. log p of a
group's likeliest token plus the group's largest noise bounds what the group can reach: only groups whose bound beats
what was found are looked into, a handful of 2,000 for a vocabulary of 128,000.
"""

from collections.abc import Sequence
from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specpair.speculation.randomness import BITS, Domain, philox_words

GROUP = 64
_FIRST_GROUPS = 4
"""Groups that are looked into at first; nearly always enough."""


def choose(probabilities: Tensor, seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """The token [R] that each row [R, V] chooses: argmax of log p + g for its seed and position.

    `seeds` are below 2^64, `positions` (the number of tokens before the chosen one) below 2^32. Rows need not be
    normalised, but each must have a positive entry; a token of probability 0 is never chosen.
    """
    grouped = _grouped(probabilities)
    maxima = _group_maxima(seeds, positions, grouped.shape[1], probabilities.device)
    bounds = grouped.amax(-1).double().log() + maxima[0]
    count = _FIRST_GROUPS
    while True:
        count = min(count, grouped.shape[1])
        groups = bounds.topk(min(count + 1, grouped.shape[1]), -1)
        scores, token_ids = _scores(grouped, maxima, groups.indices[:, :count], seeds, positions)
        best = scores.max(-1)
        if count == grouped.shape[1] or bool((best.values >= groups.values[:, count]).all()):
            return token_ids.gather(-1, best.indices[:, None])[:, 0]
        count *= 4


def noise(seeds: Sequence[int], positions: Sequence[int], vocab_size: int) -> Tensor:
    """All of the noise [R, V] float64 that `choose` adds, for whoever wants to see it whole."""
    group_count = -(-vocab_size // GROUP)
    maxima = _group_maxima(seeds, positions, group_count, torch.device("cpu"))
    groups = torch.arange(group_count).expand(len(seeds), -1)
    return _token_noise(maxima, groups, seeds, positions).flatten(1)[:, :vocab_size]


def _grouped(rows: Tensor) -> Tensor:
    """Rows [R, V] as [R, groups, GROUP], filled up with zeros."""
    missing = -rows.shape[1] % GROUP
    return (pad(rows, (0, missing)) if missing else rows).view(rows.shape[0], -1, GROUP)


def _scores(
    grouped: Tensor, maxima: tuple[Tensor, Tensor], groups: Tensor, seeds: Sequence[int], positions: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """log p + g of all tokens in `groups` [R, C], and their ids: [R, C * GROUP] each."""
    rows = grouped.gather(1, groups[..., None].expand(-1, -1, GROUP))
    scores = rows.double().log() + _token_noise(maxima, groups, seeds, positions)
    token_ids = groups[..., None] * GROUP + torch.arange(GROUP, device=groups.device)
    return scores.flatten(1), token_ids.flatten(1)


def _group_maxima(
    seeds: Sequence[int], positions: Sequence[int], group_count: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """For each group, its largest noise [R, groups] float64 and which of its tokens has it."""
    offsets = np.broadcast_to(np.arange(group_count), (len(seeds), group_count))
    high, low, choice, _ = philox_words(seeds, Domain.GUMBEL_MAXIMUM, positions, offsets, device)
    return log(GROUP) - _exponential(high, low).log(), choice % GROUP


def _token_noise(
    maxima: tuple[Tensor, Tensor], groups: Tensor, seeds: Sequence[int], positions: Sequence[int]
) -> Tensor:
    """Noise [R, C, GROUP] of all tokens in `groups` [R, C]: the largest where it falls, the others below it.

    A Gumbel variable known to be below m is -log(exp(-m) + e) with e exponential.
    """
    largest = maxima[0].gather(1, groups)[..., None]
    members = torch.arange(GROUP, device=groups.device)
    token_ids = (groups[..., None] * GROUP + members).flatten(1)
    high, low, _, _ = philox_words(seeds, Domain.GUMBEL, positions, token_ids.cpu().numpy(), groups.device)
    below = -(torch.exp(-largest) + _exponential(high, low).view(*groups.shape, GROUP)).log()
    has_largest = members == maxima[1].gather(1, groups)[..., None]
    # Rounding must not lift any above the bound.
    return torch.where(has_largest, largest, torch.minimum(below, largest))


def _exponential(high: Tensor, low: Tensor) -> Tensor:
    """Exponential variables, float64, from two words of 32 random bits, of which 53 are used; never 0."""
    bits = (high << (BITS - 32)) | (low >> (64 - BITS))
    return (-((bits + 1).double() * 2.0**-BITS).log()).clamp_min(2.0 ** -(BITS + 1))
