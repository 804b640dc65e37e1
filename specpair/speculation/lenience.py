"""Lenience: accepting a little more than is right. LOSSY: the output is no longer the target's own.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", appendix A.5. Sampled: q is multiplied by
the lenience before it is compared with p, so a token comes at most 1 / lenience times as often as it should. (The
residual stays max(p - q, 0), which keeps that promise.) Greedy: a token is accepted if its probability, before the
temperature, is at least lenience times the highest one; the paper's inequality sign is the wrong way round.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Lenience(NamedTuple):
    """How lenient each of B sequences is; 1 is exact."""

    factors: Tensor
    """[B] float64, in (0, 1]."""
    greedy: Tensor
    """[B] bool."""
    closeness: Tensor
    """[B, K] float64: probability of each draft token relative to the highest; padding is anything."""

    @classmethod
    def of(cls, factors: Sequence[float], greedy: Sequence[bool], closeness: Tensor) -> "Lenience":
        """Of B sequences, on the device of `closeness` [B, K]."""
        device = closeness.device
        return cls(
            torch.tensor(factors, dtype=torch.float64, device=device), torch.tensor(greedy, device=device), closeness
        )


def lenient_ratios(ratios: Tensor, lenience: Lenience) -> Tensor:
    """What takes the place of p / q [B, K] in the token rule."""
    factors = lenience.factors[:, None]
    greedy = torch.where(factors < 1.0, (lenience.closeness >= factors).to(ratios), ratios)
    return torch.where(lenience.greedy[:, None], greedy, ratios / factors)


def closeness(logits: Tensor, rows: Tensor, draft_tokens: Tensor) -> Tensor:
    """p(x) / max p [B, K] float64 of draft tokens [B, K], whose rows of logits [R, V] are `rows` [B, K]."""
    highest = logits.amax(-1)[rows]
    return (logits[rows, draft_tokens] - highest).double().exp()
