"""Manages cache blocks: reference counts, kept prefixes, least recently used eviction.

Plain Python with block numbers and token ids, without tensors.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from specpair.errors import CapacityExhaustedError


class PrefixKey(NamedTuple):
    """Identity of a full block's content. Compared by value, so different contents never collide."""

    parent: int
    """The registration of the previous block; 0 for a first block."""
    token_ids: tuple[int, ...]
    """The tokens in the block."""


class BlockPool:
    """A fixed number of blocks. A block is free, or held by one or more owners.

    A free block may keep its content under a PrefixKey. Such blocks are allocated last, the least recently used first.
    """

    def __init__(self, block_count: int):
        self.block_count = block_count
        self._empty = list(range(block_count - 1, -1, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()  # free, with content; oldest first
        self._references = [0] * block_count
        self._key_of: dict[int, PrefixKey] = {}
        self._block_of: dict[PrefixKey, int] = {}
        self._registration: dict[int, int] = {}
        self._registered = 0
        self.shared_count = 0
        """Blocks with more than one owner."""
        self.evicted_count = 0
        """Number of kept blocks that were evicted."""

    @property
    def kept_count(self) -> int:
        """Free blocks with content."""
        return len(self._kept)

    @property
    def free_count(self) -> int:
        """Blocks that can be allocated now, including kept ones."""
        return len(self._empty) + len(self._kept)

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with one reference each, or CapacityExhaustedError and no change."""
        if count > self.free_count:
            raise CapacityExhaustedError(f"{count} cache blocks needed, {self.free_count} free")
        return [self._take() for _ in range(count)]

    def share(self, block: int) -> None:
        """Adds an owner; a kept block becomes used again."""
        if self._references[block] == 0:
            del self._kept[block]
        self._references[block] += 1
        self.shared_count += self._references[block] == 2

    def release(self, blocks: Iterable[int]) -> None:
        """Removes an owner. Pass a sequence's blocks in reverse order, so that its beginning is kept longest."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free already"
            self._references[block] -= 1
            self.shared_count -= self._references[block] == 1
            if self._references[block] == 0:
                if block in self._key_of:
                    self._kept[block] = None
                else:
                    self._empty.append(block)

    def is_shared(self, block: int) -> bool:
        return self._references[block] > 1

    def keep(self, block: int, parent: int, token_ids: tuple[int, ...]) -> int:
        """Makes a full block findable by its content. Returns its registration, which is the next block's `parent`.

        If another block with this content is registered already, that one stays registered.
        """
        key = PrefixKey(parent, token_ids)
        if key in self._block_of:
            return self._registration[self._block_of[key]]
        self.forget(block)
        self._registered += 1
        self._key_of[block], self._block_of[key] = key, block
        self._registration[block] = self._registered
        return self._registered

    def forget(self, block: int) -> None:
        """Unregisters a block whose content changes or is dropped."""
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key], self._registration[block]

    def find(self, token_ids: list[int], block_size: int) -> list[int]:
        """The registered blocks with the longest prefix of `token_ids`, in order. The caller must share them."""
        blocks: list[int] = []
        parent = 0
        for start in range(0, len(token_ids) - block_size + 1, block_size):
            block = self._block_of.get(PrefixKey(parent, tuple(token_ids[start : start + block_size])))
            if block is None:
                break
            blocks.append(block)
            parent = self._registration[block]
        return blocks

    def _take(self) -> int:
        if self._empty:
            block = self._empty.pop()
        else:
            block, _ = self._kept.popitem(last=False)
            self.forget(block)
            self.evicted_count += 1
        self._references[block] = 1
        return block

    def check_integrity(self, holdings: Iterable[Iterable[int]]) -> None:
        """Asserts that the references match `holdings` (the blocks of every owner) and no block is lost."""
        counted = Counter(block for blocks in holdings for block in blocks)
        assert all(self._references[b] == counted[b] for b in range(self.block_count)), "references do not add up"
        assert self.shared_count == sum(count > 1 for count in self._references), "shared blocks are miscounted"
        free = [*self._empty, *self._kept]
        assert len(free) == len(set(free)), "a block is free twice"
        assert set(free) == {b for b in range(self.block_count) if not counted[b]}, "a block is lost"
        assert all(b in self._key_of for b in self._kept), "a kept block cannot be found"
        assert {key: b for b, key in self._key_of.items()} == self._block_of, "the index disagrees with itself"
        assert self._registration.keys() == self._key_of.keys(), "a registration is left over"
