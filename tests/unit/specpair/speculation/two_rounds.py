"""Two rounds with work ahead, enumerated: branches for all outcomes of the first, drawn before it is judged.

All branches are drawn by the same uniforms, one for each place, so they are not independent of each other. The
uniforms are integrated over by the cells in which every draw of every branch, and every decision, is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.verification import (
    Block,
    acceptance_thresholds,
    count_accepted,
    packed_rows,
    residual_weights,
)
from tests.unit.specpair.speculation.enumeration import Model, all_blocks, joint_distribution


class Cell(NamedTuple):
    """A box of uniforms."""

    inside: Tensor
    """[K]: a point of it."""
    volume: float


class Branches(NamedTuple):
    """How branches are made; the defaults are right."""

    shares_acceptance: bool = False
    """Whether branches are drawn by the uniforms that judge the block before them."""
    is_redrawn: Callable[[Tensor, Tensor], Tensor] | None = None
    """Which blocks [V^K, K] of a draft are drawn once more, by other noise, after they were seen: their rows [V^K, K]
    say how likely each token was."""
    length: Callable[[Tensor], Tensor] | None = None
    """How many tokens [V^K] of each block are sent, by those chances [V^K, K]; default all."""


class Judged(NamedTuple):
    """All blocks of one draft, judged."""

    tokens: Tensor
    """[V^K, K]."""
    thresholds: Tensor
    """[V^K, K]: a token is accepted by uniforms below."""
    next_tokens: Callable[[Tensor], tuple[Tensor, Tensor]]
    """For uniforms [V^K, K]: the accepted counts [V^K], and the distributions [V^K, V] of the target's own token."""


def text_distribution(target: Model, draft: Model, rule: Rule, length: int, branches: Branches) -> Tensor:
    """[V^(2 K + 2)]: what two rounds of K = `length` write, the target writing what they did not.

    The target has 2 K + 2 levels, the draft 2 K + 1.
    """
    vocab_size = target[0].shape[1]
    first = judge(target, draft, rule, length)
    second = SecondRound(target, draft, rule, length, branches)
    written = torch.zeros(vocab_size ** (2 * length + 2), dtype=torch.float64)
    for number, chance in enumerate(joint_distribution(draft[:length])):
        deciding = [{float(end)} for end in first.thresholds[number].clamp(0.0, 1.0)]
        if branches.shares_acceptance:
            deciding = [own | shared for own, shared in zip(deciding, second.edges(), strict=True)]
        for cell in cells(deciding):
            counts, following = (part[number] for part in first.next_tokens(cell.inside.expand_as(first.thresholds)))
            for token in range(vocab_size):
                prefix = (*first.tokens[number, : int(counts)].tolist(), token)
                mass = float(chance) * cell.volume * float(following[token])
                if mass:
                    add(written, vocab_size, prefix, mass * second.text(prefix, cell.inside))
    return written


class SecondRound:
    """What follows each outcome of the first round, from the branch that was drawn for it."""

    def __init__(self, target: Model, draft: Model, rule: Rule, length: int, branches: Branches):
        self._target, self._draft, self._rule, self._length, self._branches = target, draft, rule, length, branches
        self._blocks = all_blocks(target[0].shape[1], length)
        self._laws: dict[tuple[int, ...], Tensor] = {}
        self._known: dict[tuple[int, ...], Tensor] = {}

    def edges(self) -> list[set[float]]:
        """[K]: at which uniforms some branch draws another token at a place."""
        return [
            {end for level in self._draft[1 + i : self._length + 2 + i] for end in level.cumsum(-1).flatten().tolist()}
            for i in range(self._length)
        ]

    def text(self, prefix: tuple[int, ...], judging: Tensor) -> Tensor:
        """[V^(2 K + 2 - prefix)]: what follows a prefix, given the uniforms [K] that judged the first round."""
        draft = after(self._draft, prefix)
        if self._branches.shares_acceptance:
            return drawn_block(draft, self._blocks, judging) @ self._law(prefix)
        if prefix not in self._known:
            rows = [set(level.cumsum(-1).flatten().tolist()) for level in draft[: self._length]]
            weights = [cell.volume * drawn_block(draft, self._blocks, cell.inside) for cell in cells(rows)]
            self._known[prefix] = torch.stack(weights).sum(0) @ self._law(prefix)
        return self._known[prefix]

    def _law(self, prefix: tuple[int, ...]) -> Tensor:
        """[V^K, V^(2 K + 2 - prefix)]: what follows, for each block that the branch may have drawn."""
        if prefix not in self._laws:
            self._laws[prefix] = self._make_law(after(self._target, prefix), after(self._draft, prefix))
        return self._laws[prefix]

    def _make_law(self, target: Model, draft: Model) -> Tensor:
        vocab_size = target[0].shape[1]
        rows = [rows_along(level, self._blocks[:, :i]) for i, level in enumerate(draft[: self._length])]
        shares = torch.stack(rows, 1).gather(2, self._blocks[..., None])[..., 0]
        lengths = None if self._branches.length is None else self._branches.length(shares)
        judged = judge(target, draft, self._rule, self._length, lengths)
        law = torch.zeros(len(self._blocks), vocab_size ** len(target), dtype=torch.float64)
        for decisions in product((False, True), repeat=self._length):
            taken = torch.tensor(decisions)
            chances = torch.where(taken, judged.thresholds, 1 - judged.thresholds).prod(1)
            counts, following = judged.next_tokens(torch.where(taken, 0.0, judged.thresholds))
            for block, token in (chances[:, None] * following).nonzero().tolist():
                text = (*judged.tokens[block, : int(counts[block])].tolist(), token)
                mass = float(chances[block] * following[block, token])
                add(law[block], vocab_size, text, mass * completions(after(target, text)))
        if self._branches.is_redrawn is not None:
            redrawn = self._branches.is_redrawn(self._blocks, shares).bool()
            law = torch.where(redrawn[:, None], shares.prod(1) @ law, law)
        return law


def judge(target: Model, draft: Model, rule: Rule, length: int, lengths: Tensor | None = None) -> Judged:
    """All blocks of `length` tokens of the draft, of which the first `lengths` are sent."""
    tokens = all_blocks(target[0].shape[1], length)
    lengths = torch.full((len(tokens),), length) if lengths is None else lengths
    rows = torch.stack([rows_along(level, tokens[:, :i]) for i, level in enumerate(draft[:length])], 1)
    sent = rows * (torch.arange(length) < lengths[:, None])[..., None]
    drafted = DraftRows.of(torch.arange(rows.shape[2]).expand(rows.shape), sent, tokens)
    block = Block(tokens, lengths, drafted, torch.from_numpy(packed_rows(lengths.tolist(), length)), rule)
    own = torch.stack([rows_along(level, tokens[:, :i]) for i, level in enumerate(target[: length + 1])], 1)
    packed = own[torch.arange(length + 1) <= lengths[:, None]]
    thresholds = acceptance_thresholds(packed, block)

    def next_tokens(uniforms: Tensor) -> tuple[Tensor, Tensor]:
        counts = count_accepted(thresholds.acceptance, block, uniforms)
        weights = residual_weights(packed, block, thresholds, counts)
        return counts, weights / weights.sum(-1, keepdim=True)

    return Judged(tokens, thresholds.acceptance, next_tokens)


def cells(edges: Sequence[set[float]]) -> Iterator[Cell]:
    """The boxes of uniforms [K] between edges [K]."""
    sides: list[list[tuple[float, float]]] = []
    for place in edges:
        ends = sorted({0.0, 1.0, *(min(max(end, 0.0), 1.0) for end in place)})
        sides.append(list(pairwise(ends)))
    for box in product(*sides):
        inside = torch.tensor([(low + high) / 2 for low, high in box], dtype=torch.float64)
        yield Cell(inside, prod(high - low for low, high in box))


def drawn_block(draft: Model, blocks: Tensor, uniforms: Tensor) -> Tensor:
    """[V^K]: 1 for the block that uniforms [K] draw, by inversion."""
    number, vocab_size = 0, draft[0].shape[1]
    for uniform, level in zip(uniforms, draft, strict=False):
        token = int((level[number].cumsum(-1) <= uniform).sum().clamp(max=vocab_size - 1))
        number = number * vocab_size + token
    weights = torch.zeros(len(blocks), dtype=torch.float64)
    weights[number] = 1.0
    return weights


def after(model: Model, prefix: Sequence[int]) -> Model:
    """The model of what follows a prefix."""
    vocab_size, number = model[0].shape[1], 0
    for token in prefix:
        number = number * vocab_size + token
    return [
        level[number * vocab_size**depth : (number + 1) * vocab_size**depth]
        for depth, level in enumerate(model[len(prefix) :])
    ]


def rows_along(level: Tensor, prefixes: Tensor) -> Tensor:
    """[N, V]: the rows of a level after prefixes [N, i]."""
    return level[(prefixes * level.shape[1] ** torch.arange(prefixes.shape[1] - 1, -1, -1)).sum(-1)]


def add(total: Tensor, vocab_size: int, prefix: Sequence[int], mass: Tensor) -> None:
    """Adds the mass of all that follows a prefix, in place."""
    number = 0
    for token in prefix:
        number = number * vocab_size + token
    total[number * len(mass) : (number + 1) * len(mass)] += mass


def completions(model: Model) -> Tensor:
    """[V^depth]: distribution of all tokens of a model, which may have no level left."""
    return joint_distribution(model) if model else torch.ones(1, dtype=torch.float64)
