"""Which stored tokens each token of a forward pass sees."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.holding import Segment

Parents = Sequence[int | None]
"""For each token the index of the token before it, which has a smaller index; None after the cached prefix."""


class Masks:
    """The masks of one forward pass, each made at its first use."""

    def __init__(self, segments: Sequence[Segment], parents: Parents | None, device: torch.device):
        """`parents` are indices among the tokens of all segments; None where every segment is a chain."""
        self._segments = segments
        self._parents = None if parents is None else split_parents(segments, parents)
        self._device = device
        self._made: dict[tuple[int, int | None, int], Tensor | None] = {}

    def of(self, index: int, window: int | None, groups: int) -> Tensor | None:
        """`[groups * count, end]` of the segment at `index`, True where a token may look; None where it may look
        everywhere."""
        key = (index, window, groups)
        if key not in self._made:
            mask = self._make(index, window)
            self._made[key] = mask if mask is None or groups == 1 else mask.repeat(groups, 1)
        return self._made[key]

    def _make(self, index: int, window: int | None) -> Tensor | None:
        segment = self._segments[index]
        if self._parents is None:
            return causal_mask(segment, window, self._device)
        return tree_mask(segment, self._parents[index], window).to(self._device)


def causal_mask(segment: Segment, window: int | None, device: torch.device) -> Tensor | None:
    """Which of the `end` positions each of the `count` tokens sees: itself and those before, within the window."""
    if segment.token_count == 1 and (window is None or segment.end <= window):
        return None
    rows = torch.arange(segment.start, segment.end, device=device)[:, None]
    columns = torch.arange(segment.end, device=device)[None, :]
    mask = columns <= rows
    return mask if window is None else mask & (columns > rows - window)


def tree_mask(segment: Segment, parents: Parents, window: int | None) -> Tensor:
    """`[count, end]`: each token sees the prefix, its ancestors and itself, within the window.

    `parents` are indices within the segment. Tokens are stored in their order, whatever their positions are.
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
    """The position of each token: one after that of its parent, `start` without one."""
    positions: list[int] = []
    for parent in parents:
        positions.append(start if parent is None else positions[parent] + 1)
    return positions


def split_parents(segments: Sequence[Segment], parents: Parents) -> list[list[int | None]]:
    """The parents of each segment, as indices within it. Every parent is in the segment of its token."""
    split: list[list[int | None]] = []
    first = 0
    for segment in segments:
        own = parents[first : first + segment.token_count]
        split.append([None if parent is None else parent - first for parent in own])
        assert all(parent is None or 0 <= parent < row for row, parent in enumerate(split[-1])), "no tree"
        first += segment.token_count
    return split
