"""The loss of a draft's hidden states against the target's likeliest tokens, with its gradient worked out by hand.

Logits over the output tokens are the largest tensor of a step by far. They are needed only for their log-sum-exp and at
the few tokens that the target kept, so the gradient is computed with the loss, some rows at a time, and none are kept.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 1024
"""Positions at a time."""


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """What the target says at some positions, over the draft's output tokens."""

    columns: Tensor
    """Of its likeliest tokens among the output tokens, int64 `[rows, 64]`; any for a token that is not among them."""
    probabilities: Tensor
    """Theirs at temperature 1, float32; 0 for a token that is not among them."""
    cold: Tensor
    """Whether the position belongs to an answer at a temperature below 1, bool `[rows]`."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How the parts of the loss are mixed."""

    overlap: float
    """Share of 1 - overlap in the loss; the rest is the Kullback-Leibler divergence."""
    heat: float
    """Temperature of both models at which the overlap of cold answers is taken."""


def sharpened(probabilities: Tensor, heat: Tensor) -> Tensor:
    """The same distributions at temperatures `heat` [rows, 1], each with its own sum kept."""
    total = probabilities.sum(-1, keepdim=True)
    powers = probabilities.pow(1 / heat)
    return powers / powers.sum(-1, keepdim=True).clamp_min(1e-30) * total


def row_losses(logits: Tensor, teacher: Teacher, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over rows of divergence and overlap, and the gradient of the loss's sum; `logits` are overwritten."""
    p = teacher.probabilities
    mass = p.sum(-1, keepdim=True)
    kept = logits.gather(1, teacher.columns)
    norm = logits.logsumexp(-1, keepdim=True)
    log_q = kept - norm
    divergence = (p * (p.clamp_min(1e-9).log() - mass.clamp_min(1e-9).log() - log_q)).sum()
    heat = torch.where(teacher.cold, weights.heat, 1.0)[:, None]
    share = 1 - weights.overlap
    if not weights.overlap:
        gradient = (logits - norm).exp_().mul_(mass * share)
        return divergence, torch.zeros(()), gradient.scatter_add_(1, teacher.columns, -share * p)
    hot = logits / heat
    hot_norm = hot.logsumexp(-1, keepdim=True)
    q = (kept / heat - hot_norm).exp()
    sharp = sharpened(p, heat)
    overlap = torch.minimum(sharp, q).sum()
    low = q * (q < sharp)
    gradient = (hot - hot_norm).exp_().mul_(low.sum(-1, keepdim=True) * weights.overlap / heat)
    gradient += (logits - norm).exp_().mul_(mass * share)
    return divergence, overlap, gradient.scatter_add_(1, teacher.columns, -share * p - weights.overlap / heat * low)


class DistillationLoss(torch.autograd.Function):
    """Mean loss per position of hidden states `[rows, width]` under a frozen head `[outputs, width]`."""

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, teacher: Teacher, weights: Weights) -> Tensor:
        gradients, divergence, overlap = [], torch.zeros(()), torch.zeros(())
        for start in range(0, len(hidden), ROWS):
            rows = slice(start, start + ROWS)
            part = Teacher(
                columns=teacher.columns[rows], probabilities=teacher.probabilities[rows], cold=teacher.cold[rows]
            )
            logits = (hidden[rows].to(head.dtype) @ head.mT).float()
            lost, shared, gradient = row_losses(logits, part, weights)
            divergence, overlap = divergence + lost, overlap + shared
            gradients.append((gradient.to(head.dtype) @ head).float())
        n = len(hidden)
        ctx.save_for_backward(torch.cat(gradients) / n)
        return (1 - weights.overlap) * divergence / n + weights.overlap * (1 - overlap / n)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient * ctx.saved_tensors[0], None, None, None
