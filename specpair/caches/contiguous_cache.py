"""A KV cache with one contiguous slab per sequence: attention gathers nothing, which is faster on a CPU."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from specpair.caches.cache import BlockCounts, KeyValueCache, LayerShape, blocks_for
from specpair.caches.holding import Holding, Segment
from specpair.caches.host_copy import copy_beginning
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.caches.plan import CacheAccess
from specpair.errors import CapacityExhaustedError


@dataclass(eq=False)
class Stack:
    """Keys and values of all layers of one shape: `[layers, heads, capacity, size]`."""

    layers: list[int]
    keys: Tensor
    values: Tensor


@dataclass(eq=False)
class Slab:
    """The memory of one sequence. Its capacity is a whole number of blocks."""

    stacks: list[Stack]
    block_count: int
    token_ids: list[int]
    """The tokens by which a later sequence may find the slab; empty unless kept."""


class ContiguousCache(KeyValueCache):
    """Slabs grow by doubling. The slabs of closed sequences are kept until their memory is needed."""

    name = "contiguous"

    def __init__(
        self, layers: dict[int, LayerShape], block_count: int, block_size: int, dtype: torch.dtype, device: torch.device
    ):
        self.block_size = block_size
        self.block_count = block_count
        self.device = device
        self._dtype = dtype
        self._shapes: dict[LayerShape, list[int]] = {}
        for layer, shape in layers.items():
            self._shapes.setdefault(shape, []).append(layer)
        self._holdings: set[Holding] = set()
        self._kept: OrderedDict[Slab, None] = OrderedDict()  # of closed sequences; oldest first
        self._held_blocks = 0
        self._kept_blocks = 0
        self._evicted_blocks = 0

    @property
    def free_block_count(self) -> int:
        return self.block_count - self._held_blocks

    def block_counts(self) -> BlockCounts:
        """No block is shared: a fork is a copy."""
        held, kept = self._held_blocks, self._kept_blocks
        return BlockCounts(held, 0, kept, self.block_count - held - kept, self._evicted_blocks)

    def open(self, token_ids: list[int]) -> Holding:
        best = max(self._kept, key=lambda slab: common_length(slab.token_ids, token_ids), default=None)
        shared = common_length(best.token_ids, token_ids) if best else 0
        if best is None or shared < self.block_size:
            holding = Holding(0, Slab([], 0, []))
        elif shared == len(best.token_ids):
            holding = Holding(shared, self._take_over(best))
        else:
            holding = self._share(best, shared)
        self._holdings.add(holding)
        return holding

    def append(self, holding: Holding, count: int) -> None:
        slab: Slab = holding.storage
        wanted = blocks_for(holding.length + count, self.block_size)
        if wanted > slab.block_count:
            grown = max(wanted, min(2 * slab.block_count, slab.block_count + self.free_block_count))
            holding.storage = self._copy(slab, holding.length, grown, returned=slab.block_count)
        holding.length += count

    def truncate_to(self, holding: Holding, length: int) -> None:
        assert 0 <= length <= holding.length
        holding.length = length
        del holding.storage.token_ids[length:]  # the next tokens there may differ

    def has_blocks(self, holding: Holding) -> bool:
        slab: Slab = holding.storage  # a slab does not shrink with its tokens
        return slab.block_count > 0

    def fork(self, holding: Holding, length: int, room: int = 0) -> Holding:
        slab = self._copy(holding.storage, length, blocks_for(length + room, self.block_size), returned=0)
        forked = Holding(length, slab)
        self._holdings.add(forked)
        return forked

    def keep(self, holding: Holding, token_ids: list[int]) -> None:
        holding.storage.token_ids = token_ids[: holding.length]

    def free(self, holding: Holding) -> None:
        self._holdings.remove(holding)
        slab: Slab = holding.storage
        self._held_blocks -= slab.block_count
        if len(slab.token_ids) >= self.block_size:
            self._keep_slab(slab)

    def keep_path(self, holding: Holding, start: int, path: list[int]) -> None:
        kept = torch.tensor(path, device=self.device) + start
        for stack in holding.storage.stacks:
            for held in (stack.keys, stack.values):
                held[:, :, start : start + len(path)] = held.index_select(2, kept)
        self.truncate_to(holding, start + len(path))

    def access(self, segments: Sequence[Segment]) -> "ContiguousAccess":
        return ContiguousAccess(segments)

    def check_integrity(self) -> None:
        held = sum(holding.storage.block_count for holding in self._holdings)
        kept = sum(slab.block_count for slab in self._kept)
        assert (held, kept) == (self._held_blocks, self._kept_blocks), "blocks do not add up"
        assert held + kept <= self.block_count, "more blocks than there are"
        for holding in self._holdings:
            assert holding.length <= holding.storage.block_count * self.block_size, "a slab is too small"
            assert holding.storage not in self._kept, "a kept slab is held"

    def _keep_slab(self, slab: Slab) -> None:
        """Keeps a slab unless a kept one begins with its tokens. Drops kept slabs whose tokens it begins with."""
        for other in list(self._kept):
            if begins_with(other.token_ids, slab.token_ids):
                self._kept.move_to_end(other)
                return
            if begins_with(slab.token_ids, other.token_ids):
                del self._kept[other]
                self._kept_blocks -= other.block_count
        self._kept[slab] = None
        self._kept_blocks += slab.block_count

    def _take_over(self, slab: Slab) -> Slab:
        """Turns a kept slab into the slab of a new sequence."""
        del self._kept[slab]
        self._kept_blocks -= slab.block_count
        self._held_blocks += slab.block_count
        slab.token_ids = []
        return slab

    def _share(self, slab: Slab, length: int) -> Holding:
        """A holding with a copy of the beginning of a kept slab, which stays; an empty one if there is no room."""
        try:
            copy = self._copy(slab, length, blocks_for(length, self.block_size), returned=0)
        except CapacityExhaustedError:
            return Holding(0, Slab([], 0, []))
        return Holding(length, copy)

    def _copy(self, slab: Slab, length: int, block_count: int, *, returned: int) -> Slab:
        """A slab of `block_count` blocks with the first `length` tokens. `returned` blocks of `slab` are freed."""
        if block_count - returned > self.free_block_count:
            raise CapacityExhaustedError(f"{block_count - returned} cache blocks needed, {self.free_block_count} free")
        while self._held_blocks + block_count - returned + self._kept_blocks > self.block_count:
            evicted, _ = self._kept.popitem(last=False)
            self._kept_blocks -= evicted.block_count
            self._evicted_blocks += evicted.block_count
        stacks = self._stacks(block_count)
        if length:
            for new, old in zip(stacks, slab.stacks, strict=True):
                copy_beginning(new.keys, old.keys, length)
                copy_beginning(new.values, old.values, length)
        copy = Slab(stacks, block_count, list(slab.token_ids) if returned else [])
        self._held_blocks += block_count - returned  # last, so that a failed allocation is not counted
        return copy

    def _stacks(self, block_count: int) -> list[Stack]:
        try:
            return [self._stack(shape, layers, block_count) for shape, layers in self._shapes.items()]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise CapacityExhaustedError(f"no memory for {block_count} cache blocks") from error

    def _stack(self, shape: LayerShape, layers: list[int], block_count: int) -> Stack:
        capacity = block_count * self.block_size
        keys, values = (
            torch.empty(len(layers), shape.heads, capacity, size, dtype=self._dtype, device=self.device)
            for size in (shape.key_size, shape.value_size)
        )
        return Stack(layers, keys, values)


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
        if layer not in self._read:
            self._read.update(slices(self._segments, layer, [0] * len(self._segments)))
        return self._read[layer][index]


def slices(segments: Sequence[Segment], layer: int, starts: Sequence[int]) -> dict[int, list[Pair]]:
    """For each layer in the stack of `layer` keys and values `[heads, tokens, size]` of each segment, from its start to
    its end."""
    views: dict[int, list[Pair]] = {}
    for segment, start in zip(segments, starts, strict=True):
        stack = next(stack for stack in segment.holding.storage.stacks if layer in stack.layers)
        keys = stack.keys[:, :, start : segment.end].unbind(0)
        values = stack.values[:, :, start : segment.end].unbind(0)
        for own, pair in zip(stack.layers, zip(keys, values, strict=True), strict=True):
            views.setdefault(own, []).append(pair)
    return views


def begins_with(token_ids: list[int], beginning: list[int]) -> bool:
    return token_ids[: len(beginning)] == beginning


def common_length(left: list[int], right: list[int]) -> int:
    """Length of the common prefix."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))
