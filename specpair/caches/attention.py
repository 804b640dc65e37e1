"""Scaled dot-product attention of one segment, and the masks of a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.caches.holding import Segment

Parents = Sequence[int | None]
"""For each token the index of its parent, which is smaller than its own; None if it follows the cached prefix."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What one attention layer needs beyond plain causal attention."""

    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, variant: Variant) -> Tensor:
    """Attention with grouped heads: `[heads, count, value size]`.

    query `[heads, count, size]`, keys and values `[key heads, end, size]`, mask `[groups * count, end]`: `groups` query
    heads share a key head. They become rows of one product, so keys are never copied.
    """
    heads, count, size = query.shape
    rows = query.reshape(keys.size(0), heads // keys.size(0) * count, size)
    if variant.softcap is None:
        output = F.scaled_dot_product_attention(rows[None], keys[None], values[None], mask, scale=variant.scaling)[0]
    else:
        scores = torch.tanh(rows @ keys.mT * (variant.scaling / variant.softcap)) * variant.softcap
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        output = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
    return output.reshape(heads, count, values.size(2))


class Masks:
    """The masks of one forward pass, each made at its first use."""

    def __init__(self, segments: Sequence[Segment], parents: Parents | None, device: torch.device):
        """`parents` are indices among the tokens of all segments; None if every segment is a chain."""
        self._segments = segments
        self._parents = None if parents is None else split_parents(segments, parents)
        self._device = device
        self._made: dict[tuple[int, int | None, int], Tensor | None] = {}

    def of(self, index: int, window: int | None, groups: int) -> Tensor | None:
        """The mask `[groups * count, end]` of the segment at `index`, True where a token attends; None if it attends
        everywhere."""
        key = (index, window, groups)
        if key not in self._made:
            mask = self._make(index, window)
            self._made[key] = mask if mask is None or groups == 1 else mask.repeat(groups, 1)
        return self._made[key]

    def _make(self, index: int, window: int | None) -> Tensor | None:
        segment = self._segments[index]
        if self._parents is None or is_chain(self._parents[index]):
            return causal_mask(segment, window, self._device)
        return tree_mask(segment, self._parents[index], window).to(self._device)


def causal_mask(segment: Segment, window: int | None, device: torch.device) -> Tensor | None:
    """`[count, end]`: each token sees itself and the tokens before it, within the window. None if it sees all."""
    if segment.token_count == 1 and (window is None or segment.end <= window):
        return None
    rows = torch.arange(segment.start, segment.end, device=device)[:, None]
    columns = torch.arange(segment.end, device=device)[None, :]
    mask = columns <= rows
    return mask if window is None else mask & (columns > rows - window)


def tree_mask(segment: Segment, parents: Parents, window: int | None) -> Tensor:
    """`[count, end]`: each token sees the prefix, its ancestors and itself, within the window.

    `parents` are indices within the segment. Tokens are stored in index order, not in order of position.
    """
    start = segment.start
    sees = torch.zeros(segment.token_count, segment.end, dtype=torch.bool)
    sees[:, :start] = True
    for row, parent in enumerate(parents):
        if parent is not None:
            sees[row] = sees[parent]
        sees[row, start + row] = True
    if window is None:
        return sees
    positions = torch.tensor(tree_positions(start, parents))
    columns = torch.cat([torch.arange(start), positions])
    return sees & (columns > positions[:, None] - window)


def tree_positions(start: int, parents: Parents) -> list[int]:
    """The position of each token: one after its parent's, or `start` without a parent."""
    positions: list[int] = []
    for parent in parents:
        positions.append(start if parent is None else positions[parent] + 1)
    return positions


def is_chain(parents: Parents) -> bool:
    """Whether each token of a segment, whose parents these are, follows the one before it."""
    return all(parent == row - 1 for row, parent in enumerate(parents) if row) and parents[0] is None


def split_parents(segments: Sequence[Segment], parents: Parents) -> list[list[int | None]]:
    """The parents of each segment, as indices within it. Every parent must be in the same segment as its token."""
    split: list[list[int | None]] = []
    first = 0
    for segment in segments:
        own = parents[first : first + segment.token_count]
        split.append([None if parent is None else parent - first for parent in own])
        assert all(parent is None or 0 <= parent < row for row, parent in enumerate(split[-1])), "no tree"
        first += segment.token_count
    return split
