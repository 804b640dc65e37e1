"""A plan whose attention gives each token the same bits whatever else is fed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.attention import Parents, Variant, attend, split_parents
from specpair.caches.holding import Segment
from specpair.caches.plan import CacheAccess, CachePlan


class RowwisePlan(CachePlan):
    """One product for each token, over the keys that it sees and no others, in the order of their positions."""

    def __init__(self, access: CacheAccess, segments: Sequence[Segment], parents: Parents | None):
        """`parents`, if there are trees, are indices among the tokens of all segments."""
        self._access = access
        self._paths = [paths(segment) for segment in segments]
        if parents is not None:
            pairs = zip(segments, split_parents(segments, parents), strict=True)
            self._paths = [tree_paths(segment, own) for segment, own in pairs]

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        self._access.write(layer, keys, values)
        outputs: list[Tensor] = []
        for index, own in enumerate(self._paths):
            held_keys, held_values = self._access.read(layer, index)
            for path in own:
                row = query[:, len(outputs) : len(outputs) + 1]
                seen = [visible(held, path, variant.sliding_window) for held in (held_keys, held_values)]
                outputs.append(attend(row, seen[0], seen[1], None, variant))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


Path = range | list[int]
"""The places that a token sees in its sequence, in the order of their positions; a range if they are contiguous."""


def paths(segment: Segment) -> list[Path]:
    """The path to each token of a chain: itself and everything before it."""
    return [range(end) for end in range(segment.start + 1, segment.end + 1)]


def tree_paths(segment: Segment, parents: Parents) -> list[Path]:
    """The path to each token: the cached prefix, its ancestors and itself. `parents` are indices within the segment."""
    made: list[Path] = []
    for row, parent in enumerate(parents):
        before = range(segment.start) if parent is None else made[parent]
        made.append([*before, segment.start + row])
    return made


def visible(held: Tensor, path: Path, window: int | None) -> Tensor:
    """`[heads, seen, size]`: what lies on the path, within the window."""
    if window is not None:
        path = path[-window:]
    if isinstance(path, range):
        return held[:, path.start : path.stop]
    return held.index_select(1, torch.tensor(path))
