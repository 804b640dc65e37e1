"""What a round of speculation emits, enumerated: every block the draft can draw, every way it can be judged.

A model is a tree of conditionals: `model[i]` holds the distributions `[V^i, V]` after each of the prefixes of i
tokens, numbered in base V. Nothing is sampled; the uniforms are integrated over from the thresholds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.verification import (
    Block,
    Thresholds,
    acceptance_thresholds,
    count_accepted,
    packed_rows,
    residual_weights,
)

Model: TypeAlias = list[Tensor]
Wrong: TypeAlias = Callable[[Thresholds], Thresholds]
"""Spoils the thresholds, for negative controls."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one round."""

    joint: Tensor
    """[V^(K + 1)]: distribution of the next K + 1 tokens, the target writing what the round did not."""
    mean_accepted: float
    emission: Tensor
    """[K + 1]: how likely each accepted count is."""


def random_model(generator: torch.Generator, vocab_size: int, depth: int, spread: float, zeros: float) -> Model:
    """Softmax of normal logits with deviation `spread`; each is 0 with probability `zeros`, but one of a row never."""
    model = []
    for level in range(depth):
        shape = (vocab_size**level, vocab_size)
        weights = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(spread).exp_()
        weights[torch.rand(shape, generator=generator) < zeros] = 0.0
        spared = torch.randint(vocab_size, (shape[0], 1), generator=generator)
        weights.scatter_add_(1, spared, torch.full(spared.shape, 0.05, dtype=torch.float64))
        model.append(weights / weights.sum(-1, keepdim=True))
    return model


def joint_distribution(model: Model) -> Tensor:
    """[V^depth]: distribution of all of the model's tokens."""
    return continuations(model, 0)[0]


def continuations(model: Model, length: int) -> Tensor:
    """[V^length, V^(depth - length)]: what follows each prefix, also those that the model never writes."""
    prefixes = model[0].shape[1] ** length
    following = torch.ones(prefixes, 1, dtype=torch.float64)
    for level in model[length:]:
        following = (following[..., None] * level.view(prefixes, -1, level.shape[1])).flatten(1)
    return following


def all_blocks(vocab_size: int, length: int) -> Tensor:
    """[V^length, length]: every block of tokens, in the order of their numbers."""
    return torch.tensor(list(product(range(vocab_size), repeat=length)), dtype=torch.int64).view(-1, length)


def enumerate_round(
    target: Model,
    draft: Model,
    rule: Rule,
    *,
    spoil: Wrong = lambda thresholds: thresholds,
    lengths: Tensor | None = None,
    sent: Model | None = None,
) -> Outcome:
    """Of K = len(draft) drafted tokens, of which only the first `lengths` [V^K] of each block are sent. `sent` are the
    distributions that come with them, for negative controls; by default those from which they were drawn."""
    vocab_size, longest = draft[0].shape[1], len(draft)
    tokens = all_blocks(vocab_size, longest)
    lengths = torch.full((len(tokens),), longest) if lengths is None else lengths
    row_indices = torch.from_numpy(packed_rows(lengths.tolist(), longest))
    block = Block(tokens, lengths, _draft_rows(sent or draft, tokens, lengths), row_indices, rule)
    rows = _packed_rows(target, tokens, lengths)
    thresholds = spoil(acceptance_thresholds(rows, block))
    emitted = [torch.zeros(vocab_size ** (n + 1), dtype=torch.float64) for n in range(longest + 1)]
    for decisions in product((False, True), repeat=longest):
        uniforms = torch.where(torch.tensor(decisions), 0.0, thresholds.acceptance)
        chances = torch.where(torch.tensor(decisions), thresholds.acceptance, 1 - thresholds.acceptance)
        weights = joint_distribution(draft) * chances.prod(-1)
        counts = count_accepted(thresholds.acceptance, block, uniforms)
        residual = residual_weights(rows, block, thresholds, counts)
        _emit(emitted, tokens, counts, weights[:, None] * residual / residual.sum(-1, keepdim=True))
    emission = torch.stack([mass.sum() for mass in emitted])
    joint = sum((mass[:, None] * continuations(target, n + 1)).flatten() for n, mass in enumerate(emitted))
    assert isinstance(joint, Tensor)
    return Outcome(joint=joint, mean_accepted=float(emission @ torch.arange(longest + 1.0).double()), emission=emission)


def total_variation(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().sum() / 2)


def _emit(emitted: list[Tensor], tokens: Tensor, counts: Tensor, mass: Tensor) -> None:
    """Adds mass [blocks, V] to the sequences of n accepted tokens and the next one."""
    vocab_size = mass.shape[1]
    for n, total in enumerate(emitted):
        chosen = counts == n
        sequences = _numbers(tokens[chosen, :n], vocab_size)[:, None] * vocab_size + torch.arange(vocab_size)
        total.index_add_(0, sequences.flatten(), mass[chosen].flatten())


def _numbers(tokens: Tensor, vocab_size: int) -> Tensor:
    """Prefixes [N, i] as numbers [N] in base V."""
    return (tokens * vocab_size ** torch.arange(tokens.shape[1] - 1, -1, -1)).sum(-1)


def _rows(model: Model, tokens: Tensor) -> Tensor:
    """[N, depth, V]: the conditionals along each block."""
    vocab_size = model[0].shape[1]
    return torch.stack([level[_numbers(tokens[:, :i], vocab_size)] for i, level in enumerate(model)], 1)


def _draft_rows(draft: Model, tokens: Tensor, lengths: Tensor) -> DraftRows:
    rows = _rows(draft, tokens)
    sent = torch.arange(rows.shape[1]) < lengths[:, None]
    return DraftRows.of(torch.arange(rows.shape[2]).expand(rows.shape), rows * sent[..., None], tokens)


def _packed_rows(target: Model, tokens: Tensor, lengths: Tensor) -> Tensor:
    rows = _rows(target, tokens)
    return rows[torch.arange(rows.shape[1]) <= lengths[:, None]]
