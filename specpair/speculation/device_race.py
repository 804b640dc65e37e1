"""The choice of `gumbel` on a device, with nothing that depends on what is in the tensors, neither a shape nor a
branch: so it can be captured in a graph, and the host need not wait."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specpair.speculation.device_randomness import leading_words, words_at
from specpair.speculation.randomness import BITS, Domain
from specpair.speculation.sparse_gumbel import LANE_BITS, LANES

MOST_CONTENDERS = 64
"""Tokens of a row whose noise is compared by all of its bits. In a vocabulary of 256,000 about four tokens have the
smallest upper bits; 64 never do."""
RACED_ROWS = 32
"""Rows whose noise is made at a time: a row of 128,256 tokens takes some megabytes."""


def race_in_parts(probabilities: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """The choices of `race` for any number of rows [R, V]: int64 [R]."""
    return torch.cat([race(*part) for part in parts_of(probabilities, (seeds, positions))])


def parts_of(rows: Tensor, keys: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Rows [R, V] with their keys [R], RACED_ROWS at a time."""
    return zip(rows.split(RACED_ROWS), *(key.split(RACED_ROWS) for key in keys), strict=True)


def race(probabilities: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """The choices of `gumbel.choose` for rows [R, V] with seeds and positions [R]: int64 [R].

    The logarithm is the device's: two times that are equal but for its last bit may change places.
    """
    width = probabilities.size(1)
    words = leading_words(seeds, Domain.GUMBEL, positions, -(-width // LANES))
    shifts = LANE_BITS * torch.arange(LANES, device=words.device)
    lanes = ((words[..., None] >> shifts) & (2**LANE_BITS - 1)).flatten(1)[:, :width]
    rates = probabilities.double()
    earliest, latest = ((-torch.log1p(edge * -(2.0**-LANE_BITS)) / rates) for edge in (lanes, lanes + 1))
    never = ~(rates > 0)
    nearest = earliest.masked_fill(never, torch.inf).topk(min(MOST_CONTENDERS, width), -1, largest=False)
    bound = latest.masked_fill(never, torch.inf).amin(-1, keepdim=True)
    tokens = nearest.indices
    lower = words_at(seeds, Domain.GUMBEL_LOWER, positions, tokens)
    lower = (lower >> (64 - BITS)) & ((1 << BITS) - 1)
    uniforms = ((lanes.gather(-1, tokens) << (BITS - LANE_BITS)) | (lower >> LANE_BITS)) * 2.0**-BITS
    times = (-torch.log1p(-uniforms)).clamp_min(2.0 ** -(BITS + 1)) / rates.gather(-1, tokens)
    times = times.masked_fill((nearest.values > bound) | never.gather(-1, tokens), torch.inf)
    return tokens.gather(-1, times.argmin(-1, keepdim=True))[:, 0]
