"""A KV cache with one contiguous slab per sequence: attention gathers nothing, which is faster on a CPU.

A fork is a copy. For a runner that can read it, a short-lived one is a tail in the slab of the sequence it comes from.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch

from specpair.caches.cache import BlockCounts, KeyValueCache, LayerShape, blocks_for
from specpair.caches.contiguous_access import ContiguousAccess
from specpair.caches.holding import Holding, Segment
from specpair.caches.host_copy import copy_positions
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.caches.slab import Slab, Stack, Storage, Tail, check_places, slab_of, stretches
from specpair.errors import CapacityExhaustedError
from specpair.prefixes import common_length

FEW_PLACES, MANY_PLACES = 64, 256
"""Before its first tail, a slab with fewer places for them than the first is left for one with the second."""


class ContiguousCache(KeyValueCache):
    """Slabs grow by doubling. The slabs of closed sequences are kept until their memory is needed."""

    name = "contiguous"

    def __init__(
        self, layers: dict[int, LayerShape], block_count: int, block_size: int, dtype: torch.dtype, device: torch.device
    ):
        self.block_size = block_size
        self.block_count = block_count
        self.device = device
        self.makes_tails = False
        """Whether forks with room are tails: for runners that find tokens which are not where their positions say."""
        self._dtype = dtype
        self._shapes: dict[LayerShape, list[int]] = {}
        for layer, shape in layers.items():
            self._shapes.setdefault(shape, []).append(layer)
        self._holdings: set[Holding] = set()
        self._kept: OrderedDict[Slab, None] = OrderedDict()  # of closed sequences; oldest first
        self._held_blocks = 0
        self._kept_blocks = 0
        self._evicted_blocks = 0
        self._shared_blocks = 0

    @property
    def free_block_count(self) -> int:
        return self.block_count - self._held_blocks

    def block_counts(self) -> BlockCounts:
        """Slabs with tails are shared."""
        held, kept = self._held_blocks, self._kept_blocks
        return BlockCounts(held, self._shared_blocks, kept, self.block_count - held - kept, self._evicted_blocks)

    def open(self, token_ids: list[int]) -> Holding:
        lengths = {slab: common_length(slab.token_ids, token_ids) for slab in self._kept}
        best = max(lengths, key=lengths.__getitem__, default=None)
        shared = lengths[best] if best else 0
        if best is None or shared < self.block_size:
            return self._hold(0, Slab([], 0, []))
        if shared == len(best.token_ids):
            return self._hold(shared, self._take_over(best))
        return self._share(best, shared)

    def append(self, holding: Holding, count: int) -> None:
        self._settle(holding)
        storage: Storage = holding.storage
        if isinstance(storage, Tail):
            if holding.length + count > storage.base + storage.room:
                self._leave(holding, holding.length + count)
        else:
            writes_shared = bool(storage.tails) and holding.length < storage.shared_length
            if holding.length + count > storage.end or writes_shared:
                self._grow(holding, storage, holding.length + count)
        holding.length += count

    def truncate_to(self, holding: Holding, length: int) -> None:
        assert 0 <= length <= holding.length
        holding.length = length
        storage: Storage = holding.storage
        if isinstance(storage, Tail):
            storage.base = min(storage.base, length)
        else:
            del storage.token_ids[length:]  # the next tokens there may differ

    def has_blocks(self, holding: Holding) -> bool:
        return slab_of(holding.storage).block_count > 0  # a slab does not shrink with its tokens

    def fork(self, holding: Holding, length: int, room: int = 0) -> Holding:
        if self.makes_tails and room and length:
            storage: Storage | None = self._tail(holding, length, room)
            if storage is not None:
                return self._hold(length, storage)
        return self._hold(length, self._copy(holding, length, blocks_for(length + room, self.block_size)))

    def keep(self, holding: Holding, token_ids: list[int]) -> None:
        self._settle(holding)
        if isinstance(holding.storage, Slab):
            holding.storage.token_ids = token_ids[: holding.length]

    def free(self, holding: Holding) -> None:
        self._holdings.remove(holding)
        self._let_go(holding.storage)

    def keep_path(self, holding: Holding, start: int, path: list[int]) -> None:
        storage: Storage = holding.storage
        first = start + (storage.shift if isinstance(storage, Tail) else 0)
        kept = torch.tensor(path, device=self.device) + first
        for stack in storage.stacks:
            for held in (stack.keys, stack.values):
                held[:, :, first : first + len(path)] = held.index_select(2, kept)
        self.truncate_to(holding, start + len(path))

    def access(self, segments: Sequence[Segment]) -> ContiguousAccess:
        return ContiguousAccess(segments)

    def check_integrity(self) -> None:
        slabs = {slab_of(holding.storage) for holding in self._holdings}
        held = sum(slab.block_count for slab in slabs)
        shared = sum(slab.block_count for slab in slabs if slab.tails)
        kept = sum(slab.block_count for slab in self._kept)
        assert (held, shared, kept) == (self._held_blocks, self._shared_blocks, self._kept_blocks), "blocks are lost"
        assert held + kept <= self.block_count, "more blocks than there are"
        assert not any(slab in self._kept for slab in slabs), "a kept slab is held"
        tails = {holding.storage for holding in self._holdings if isinstance(holding.storage, Tail)}
        assert tails == {tail for slab in slabs for tail in slab.tails}, "a tail is lost, or held by nobody"
        for holding in self._holdings:
            check_places(holding, self.block_size)

    def _hold(self, length: int, storage: Storage) -> Holding:
        holding = Holding(length, storage)
        if isinstance(storage, Slab):
            storage.owner = holding
        self._holdings.add(holding)
        return holding

    def _let_go(self, storage: Storage) -> None:
        """Ends what one sequence has of a slab, which stays while others have tails there."""
        slab = slab_of(storage)
        if isinstance(storage, Slab):
            storage.lose_owner()
        else:
            slab.remove_tail(storage)
            if not slab.tails:
                self._shared_blocks -= slab.block_count
        if slab.owner is not None or slab.tails:
            return
        self._held_blocks -= slab.block_count
        if len(slab.token_ids) >= self.block_size:
            self._keep_slab(slab)

    def _tail(self, holding: Holding, length: int, room: int) -> Tail | None:
        """A fork within the slab of a sequence. Own tokens of one that is a tail itself are copied; None if there is
        no place beside that."""
        self._settle(holding)
        storage: Storage = holding.storage
        if isinstance(storage, Slab):
            self._make_places(holding, storage, room)
            return self._add_tail(holding.storage, length, room)
        base = min(length, storage.base)
        carried = length - base
        if not storage.slab.has_places(carried + room):
            return None
        tail = self._add_tail(storage.slab, base, carried + room)
        for stack in storage.stacks:
            for held in (stack.keys, stack.values):
                copy_positions(held, tail.first, held, storage.first, carried)
        return tail

    def _make_places(self, holding: Holding, slab: Slab, room: int) -> None:
        """Moves an owner to a larger slab if its own has no place for a tail; before the first one also if it has fewer
        places than were needed before, and there are blocks for as many. CapacityExhaustedError changes nothing."""
        wanted = room if slab.tails else max(room, FEW_PLACES, slab.most_tail_places)
        if slab.has_places(wanted):
            return
        slab.most_tail_places = max(slab.most_tail_places, 2 * slab.tail_places)
        wished = max(room, MANY_PLACES, 2 * slab.most_tail_places)
        room_blocks, wanted_blocks, wished_blocks = (
            blocks_for(holding.length + places, self.block_size) for places in (room, wanted, wished)
        )
        block_count = max(room_blocks, min(wished_blocks, self._most_blocks(slab, 2)))
        if block_count >= wanted_blocks or not slab.has_places(room):
            self._move(holding, slab, block_count)

    def _add_tail(self, slab: Slab, base: int, room: int) -> Tail:
        if not slab.tails:
            self._shared_blocks += slab.block_count
        return slab.add_tail(base, room)

    def _settle(self, holding: Holding) -> None:
        """Makes a tail the owner of its slab if no other sequence is left there."""
        tail: Storage = holding.storage
        if not isinstance(tail, Tail) or not tail.is_alone:
            return
        slab, own = tail.slab, holding.length - tail.base
        for stack in slab.stacks if own else []:
            for held in (stack.keys, stack.values):
                copy_positions(held, tail.base, held, tail.first, own)
        slab.remove_tail(tail)
        self._shared_blocks -= slab.block_count
        holding.storage, slab.owner = slab, holding

    def _leave(self, holding: Holding, length: int) -> None:
        """Gives a tail a slab of its own, with room for `length` tokens."""
        copy = self._copy(holding, holding.length, blocks_for(length, self.block_size))
        self._let_go(holding.storage)
        holding.storage, copy.owner = copy, holding

    def _grow(self, holding: Holding, slab: Slab, length: int) -> None:
        """Moves an owner to a slab for `length` tokens; as there are blocks, for twice as many as it has."""
        least = blocks_for(length, self.block_size)
        twice = 2 * blocks_for(holding.length, self.block_size)
        self._move(holding, slab, max(least, min(twice, self._most_blocks(slab, 1))))

    def _most_blocks(self, slab: Slab, share: int) -> int:
        """Blocks that an owner may have instead of its slab: those that it gives back, and a part of those that are
        free."""
        return self._returned(slab) + self.free_block_count // share

    @staticmethod
    def _returned(slab: Slab) -> int:
        """The blocks that an owner gives back when it moves."""
        return 0 if slab.tails else slab.block_count

    def _move(self, holding: Holding, slab: Slab, block_count: int) -> None:
        """Moves an owner to a slab of so many blocks. Tails stay in the old one."""
        copy = self._copy(holding, holding.length, block_count, returned=self._returned(slab))
        copy.token_ids, copy.owner, copy.most_tail_places = slab.token_ids, holding, slab.most_tail_places
        slab.lose_owner()
        holding.storage = copy

    def _give_back_places(self, wanted: int, spared: Holding) -> None:
        """Has owners leave slabs with places for tails, of which there are none now, until so many blocks are free."""
        for holding in list(self._holdings):
            slab: Storage = holding.storage
            if self.free_block_count >= wanted:
                return
            if holding is spared or isinstance(slab, Tail) or slab.tails or not slab.most_tail_places:
                continue
            slab.most_tail_places = 0
            if (least := blocks_for(holding.length, self.block_size)) < slab.block_count:
                self._move(holding, slab, least)

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
            return self._hold(length, self._copy(Holding(length, slab), length, blocks_for(length, self.block_size)))
        except CapacityExhaustedError:
            return self._hold(0, Slab([], 0, []))

    def _copy(self, holding: Holding, length: int, block_count: int, *, returned: int = 0) -> Slab:
        """A slab of `block_count` blocks with the first `length` tokens. `returned` blocks of the old one are freed."""
        if block_count - returned > self.free_block_count:
            self._give_back_places(block_count - returned, holding)
        if block_count - returned > self.free_block_count:
            raise CapacityExhaustedError(f"{block_count - returned} cache blocks needed, {self.free_block_count} free")
        while self._held_blocks + block_count - returned + self._kept_blocks > self.block_count:
            evicted, _ = self._kept.popitem(last=False)
            self._kept_blocks -= evicted.block_count
            self._evicted_blocks += evicted.block_count
        stacks = self._stacks(block_count)
        if length:
            copy_tokens(stacks, holding.storage, length)
        self._held_blocks += block_count - returned  # last, so that a failed allocation is not counted
        return Slab(stacks, block_count, [])

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


def copy_tokens(stacks: list[Stack], storage: Storage, length: int) -> None:
    """Copies the first `length` tokens of a sequence to new stacks."""
    for new, old in zip(stacks, storage.stacks, strict=True):
        first = 0
        for places in stretches(storage, 0, length):
            count = places.stop - places.start
            copy_positions(new.keys, first, old.keys, places.start, count)
            copy_positions(new.values, first, old.values, places.start, count)
            first += count


def begins_with(token_ids: list[int], beginning: list[int]) -> bool:
    return token_ids[: len(beginning)] == beginning
