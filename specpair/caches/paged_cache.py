"""A paged KV cache: fixed-size blocks and block tables, with shared prefixes, no copying and no fragmentation."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specpair.caches.block_pool import BlockPool
from specpair.caches.cache import BlockCounts, KeyValueCache, LayerShape, blocks_for
from specpair.caches.holding import Holding, Segment
from specpair.caches.plan import CacheAccess


class PagedCache(KeyValueCache):
    """All blocks are allocated at once: per layer keys and values, `[blocks * block_size, heads, size]` each."""

    name = "paged"

    def __init__(
        self,
        layers: dict[int, LayerShape],
        block_count: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        has_spare_block: bool = False,
    ):
        """With a spare block there is one more than `block_count`, which no sequence holds."""
        self.block_size = block_size
        self.block_count = block_count
        self.device = device
        self.spare_block = block_count
        """Where rows that are padding write, if `has_spare_block`."""
        self.has_spare_block = has_spare_block
        slots = (block_count + has_spare_block) * block_size
        self._keys = {
            i: torch.empty(slots, shape.heads, shape.key_size, dtype=dtype, device=device)
            for i, shape in layers.items()
        }
        self._values = {
            i: torch.empty(slots, shape.heads, shape.value_size, dtype=dtype, device=device)
            for i, shape in layers.items()
        }
        self._pool = BlockPool(block_count)
        self._holdings: set[Holding] = set()

    @property
    def free_block_count(self) -> int:
        return self._pool.free_count

    def block_counts(self) -> BlockCounts:
        pool = self._pool
        available, kept = pool.free_count, pool.kept_count
        return BlockCounts(self.block_count - available, pool.shared_count, kept, available - kept, pool.evicted_count)

    def open(self, token_ids: list[int]) -> Holding:
        blocks = self._pool.find(token_ids, self.block_size)
        for block in blocks:
            self._pool.share(block)
        holding = Holding(len(blocks) * self.block_size, blocks)
        self._holdings.add(holding)
        return holding

    def append(self, holding: Holding, count: int) -> None:
        table: list[int] = holding.storage
        first = holding.length // self.block_size  # the first block that is written to
        copied = first < len(table) and self._pool.is_shared(table[first])
        missing = blocks_for(holding.length + count, self.block_size) - len(table)
        fresh = self._pool.allocate(missing + copied)
        if copied:
            self._copy_block(table[first], fresh[0])
            self._pool.release([table[first]])
            table[first] = fresh.pop(0)
        elif first < len(table):
            self._pool.forget(table[first])
        table.extend(fresh)
        holding.length += count

    def truncate_to(self, holding: Holding, length: int) -> None:
        assert 0 <= length <= holding.length
        table: list[int] = holding.storage
        wanted = blocks_for(length, self.block_size)
        self._pool.release(reversed(table[wanted:]))
        del table[wanted:]
        holding.length = length

    def has_blocks(self, holding: Holding) -> bool:
        return bool(holding.storage)

    def fork(self, holding: Holding, length: int, room: int = 0) -> Holding:
        blocks = holding.storage[: blocks_for(length, self.block_size)]
        for block in blocks:
            self._pool.share(block)
        forked = Holding(length, list(blocks))
        self._holdings.add(forked)
        return forked

    def keep(self, holding: Holding, token_ids: list[int]) -> None:
        parent = 0
        full = min(holding.length, len(token_ids)) // self.block_size
        for i, block in enumerate(holding.storage[:full]):
            content = tuple(token_ids[i * self.block_size : (i + 1) * self.block_size])
            parent = self._pool.keep(block, parent, content)

    def free(self, holding: Holding) -> None:
        self.truncate_to(holding, 0)
        self._holdings.remove(holding)

    def keep_path(self, holding: Holding, start: int, path: list[int]) -> None:
        slots = torch.from_numpy(self.slots(holding, start, holding.length)).to(self.device)
        self.move(slots[path], slots[: len(path)])
        self.truncate_to(holding, start + len(path))

    def access(self, segments: Sequence[Segment]) -> "PagedAccess":
        return PagedAccess(self, segments)

    def check_integrity(self) -> None:
        self._pool.check_integrity(holding.storage for holding in self._holdings)
        for holding in self._holdings:
            assert len(holding.storage) == blocks_for(holding.length, self.block_size), "a table of the wrong length"

    def slots(self, holding: Holding, start: int, end: int) -> np.ndarray:
        """Slot numbers of the tokens at positions `start` to `end`: int64 [end - start]."""
        first = start // self.block_size
        table = np.array(holding.storage[first : blocks_for(end, self.block_size)], dtype=np.int64)
        slots = (table[:, None] * self.block_size + np.arange(self.block_size)).reshape(-1)
        return slots[start - first * self.block_size : end - first * self.block_size]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        return self._keys[index], self._values[index]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copies what is in the slots `sources` `[slots]` to the slots `targets`, in all layers."""
        for tensor in (*self._keys.values(), *self._values.values()):
            tensor[targets] = tensor[sources]

    def _copy_block(self, source: int, destination: int) -> None:
        slots = torch.arange(self.block_size, device=self.device)
        self.move(slots + source * self.block_size, slots + destination * self.block_size)


class PagedAccess(CacheAccess):
    """Slot numbers of one forward pass, copied to the device once for all layers."""

    def __init__(self, cache: PagedCache, segments: Sequence[Segment]):
        self._cache = cache
        read = [cache.slots(segment.holding, 0, segment.end) for segment in segments]
        written = [slots[segment.start :] for slots, segment in zip(read, segments, strict=True)]
        sizes = [sum(map(len, written)), *map(len, read)]
        numbers = torch.from_numpy(np.concatenate([*written, *read])).to(cache.device)
        self._written, *self._read = numbers.split(sizes)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        stored_keys, stored_values = self._cache.layer(layer)
        stored_keys.index_copy_(0, self._written, keys.transpose(0, 1))
        stored_values.index_copy_(0, self._written, values.transpose(0, 1))

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """Gathers one segment at a time: all segments together could take more memory than is left."""
        keys, values = self._cache.layer(layer)
        slots = self._read[index]
        return keys.index_select(0, slots).transpose(0, 1), values.index_select(0, slots).transpose(0, 1)
