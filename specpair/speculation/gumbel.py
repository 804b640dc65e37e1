"""Choosing with Gumbel noise that draft and target share: argmax of log p(x) + g(x) is distributed as p.

The noise g of a token is a pure function of (seed, position, token), so two distributions that are alike choose alike:
they differ with probability at most 2 TV / (1 + TV) (Daliri et al. 2024, "Coupling without Communication and
Drafter-Invariant Speculative Decoding"). Nothing needs to travel but the tokens.

The noise is made top-down, so that most of it is never computed. Tokens stand in groups of 64. The largest of 64 Gumbel
variables is Gumbel too, moved by log 64, and falls on each of them alike; the others are Gumbel below it. log p of a
group's likeliest token plus the group's largest noise bounds what the group can reach: only groups whose bound beats
what the first few gave are looked into, some tens of 2,000 for a vocabulary of 128,000.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specpair.speculation.randomness import BITS, Domain, philox_words

GROUP = 64
FIRST_GROUPS = 4
"""Groups of each row that are looked into at once; what they give rules out most of the others."""


class GroupNoise(NamedTuple):
    """The largest noise of each group, for R rows and G groups."""

    largest: Tensor
    """[R, G] float64."""
    places: Tensor
    """[R, G] int64: which of the group's tokens has it."""


def choose(probabilities: Tensor, seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """The token [R] that each row [R, V] chooses: argmax of log p + g for its seed and position.

    `seeds` are below 2^64, `positions` (the number of tokens before the chosen one) below 2^32. Rows need not be
    normalised, but each must have a positive entry; a token of probability 0 is never chosen.
    """
    grouped = _grouped(probabilities)
    keys = np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.uint64)
    noise_of_groups = _group_noise(*keys, grouped.shape[1], probabilities.device)
    bounds = grouped.amax(-1).double().log() + noise_of_groups.largest
    first = bounds.topk(min(FIRST_GROUPS, bounds.shape[1]), -1).indices
    rows = torch.arange(len(bounds), device=bounds.device)[:, None].expand_as(first)
    scores, token_ids = _best_of_groups(grouped, noise_of_groups, rows.flatten(), first.flatten(), keys)
    best, index = scores.view_as(first).max(-1)
    chosen = token_ids.view_as(first).gather(-1, index[:, None])[:, 0]
    rows, groups = (bounds.scatter_(1, first, -torch.inf) > best[:, None]).nonzero(as_tuple=True)
    if len(rows):
        scores, token_ids = _best_of_groups(grouped, noise_of_groups, rows, groups, keys)
        wins = scores == best.scatter_reduce(0, rows, scores, "amax")[rows]
        chosen[rows[wins]] = token_ids[wins]
    return chosen


def noise(seeds: Sequence[int], positions: Sequence[int], vocab_size: int) -> Tensor:
    """All of the noise [R, V] float64 that `choose` adds, for whoever wants to see it whole."""
    keys = np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.uint64)
    noise_of_groups = _group_noise(*keys, -(-vocab_size // GROUP), torch.device("cpu"))
    rows, groups = torch.ones_like(noise_of_groups.places).nonzero(as_tuple=True)
    return _token_noise(noise_of_groups, rows, groups, keys).view(len(seeds), -1)[:, :vocab_size]


def _grouped(rows: Tensor) -> Tensor:
    """Rows [R, V] as [R, G, GROUP], filled up with zeros."""
    missing = -rows.shape[1] % GROUP
    return (pad(rows, (0, missing)) if missing else rows).view(rows.shape[0], -1, GROUP)


def _best_of_groups(
    grouped: Tensor, noise_of_groups: GroupNoise, rows: Tensor, groups: Tensor, keys: tuple[np.ndarray, np.ndarray]
) -> tuple[Tensor, Tensor]:
    """The largest log p + g within each of N groups, named by row [N] and group [N], and its token: [N] each."""
    scores = grouped[rows, groups].double().log() + _token_noise(noise_of_groups, rows, groups, keys)
    best = scores.max(-1)
    return best.values, groups * GROUP + best.indices


def _group_noise(seeds: np.ndarray, positions: np.ndarray, group_count: int, device: torch.device) -> GroupNoise:
    offsets = np.broadcast_to(np.arange(group_count), (len(seeds), group_count))
    high, low, place, _ = philox_words(seeds, Domain.GUMBEL_MAXIMUM, positions, offsets, device)
    return GroupNoise(log(GROUP) - _exponential(high, low).log(), place % GROUP)


def _token_noise(
    noise_of_groups: GroupNoise, rows: Tensor, groups: Tensor, keys: tuple[np.ndarray, np.ndarray]
) -> Tensor:
    """Noise [N, GROUP] of the tokens of N groups: the largest where it falls, the others below it.

    A Gumbel variable known to be below m is -log(exp(-m) + e) with e exponential.
    """
    device = groups.device
    seeds, positions = (key[rows.cpu().numpy()] for key in keys)
    # The four words of a draw serve two neighbours.
    pairs = groups[:, None] * (GROUP // 2) + torch.arange(GROUP // 2, device=device)
    words = philox_words(seeds, Domain.GUMBEL, positions, pairs.cpu().numpy(), device)
    draws = _exponential(torch.stack(words[::2], -1), torch.stack(words[1::2], -1)).view(-1, GROUP)
    largest = noise_of_groups.largest[rows, groups][:, None]
    below = -(torch.exp(-largest) + draws).log()
    has_largest = torch.arange(GROUP, device=device) == noise_of_groups.places[rows, groups][:, None]
    # Rounding must not lift any above the bound.
    return torch.where(has_largest, largest, torch.minimum(below, largest))


def _exponential(high: Tensor, low: Tensor) -> Tensor:
    """Exponential variables, float64, from two words of 32 random bits, of which 53 are used; never 0."""
    bits = (high << (BITS - 32)) | (low >> (64 - BITS))
    return (-((bits + 1).double() * 2.0**-BITS).log()).clamp_min(2.0 ** -(BITS + 1))
