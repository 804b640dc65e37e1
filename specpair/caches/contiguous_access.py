"""Where a forward pass writes and reads keys and values of a contiguous cache."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from specpair.caches.holding import Segment
from specpair.caches.plan import CacheAccess
from specpair.caches.slab import Storage, Tail, stretches

Pair: TypeAlias = tuple[Tensor, Tensor]


class ContiguousAccess(CacheAccess):
    """Slices of the slabs, made once for all layers of a stack, where one of them is used."""

    def __init__(self, segments: Sequence[Segment]):
        self._segments = segments
        self._counts = [segment.token_count for segment in segments]
        self._written: dict[int, list[Pair]] = {}
        self._read: dict[int, list[Pair]] = {}

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        if layer not in self._written:
            self._written.update(slices(self._segments, layer, [segment.start for segment in self._segments]))
        written = self._written[layer]
        if len(written) == 1:
            own_keys, own_values = written[0]
            own_keys.copy_(keys)
            own_values.copy_(values)
            return
        parts = zip(written, keys.split(self._counts, 1), values.split(self._counts, 1), strict=True)
        for (own_keys, own_values), new_keys, new_values in parts:
            own_keys.copy_(new_keys)
            own_values.copy_(new_values)

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        if isinstance(self._segments[index].holding.storage, Tail):
            return joined(self._segments[index], layer)
        if layer not in self._read:
            self._read.update(slices(self._segments, layer, [0] * len(self._segments)))
        return self._read[layer][index]


def slices(segments: Sequence[Segment], layer: int, starts: Sequence[int]) -> dict[int, list[Pair]]:
    """For each layer in the stack of `layer` keys and values `[heads, tokens, size]` of each segment, from its start to
    its end; of a tail those of its own tokens alone."""
    views: dict[int, list[Pair]] = {}
    for segment, start in zip(segments, starts, strict=True):
        storage: Storage = segment.holding.storage
        stack = next(stack for stack in storage.stacks if layer in stack.layers)
        places = stretches(storage, start, segment.end)[-1]
        keys = stack.keys[:, :, places].unbind(0)
        values = stack.values[:, :, places].unbind(0)
        for own, pair in zip(stack.layers, zip(keys, values, strict=True), strict=True):
            views.setdefault(own, []).append(pair)
    return views


def joined(segment: Segment, layer: int) -> Pair:
    """Keys and values `[heads, tokens, size]` of all tokens of a tail: copies, as of the moment."""
    storage: Storage = segment.holding.storage
    stack = next(stack for stack in storage.stacks if layer in stack.layers)
    index = stack.layers.index(layer)
    places = stretches(storage, 0, segment.end)
    keys, values = (torch.cat([held[index][:, some] for some in places], 1) for held in (stack.keys, stack.values))
    return keys, values
