"""The memory of sequences in a contiguous cache: slabs, and tails, which are forks that live in one."""

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from torch import Tensor

from specpair.caches.holding import Holding


@dataclass(eq=False)
class Stack:
    """Keys and values of all layers of one shape: `[layers, heads, capacity, size]`."""

    layers: list[int]
    keys: Tensor
    values: Tensor


@dataclass(eq=False)
class Slab:
    """The memory of one sequence, its owner. Its capacity is a whole number of blocks. At its end may be tails, of
    forks that read the beginning in place."""

    stacks: list[Stack]
    block_count: int
    token_ids: list[int]
    """The tokens by which a later sequence may find the slab; empty unless kept."""
    owner: Holding | None = None
    tails: "set[Tail]" = field(default_factory=lambda: set[Tail]())
    shared_length: int = 0
    """No tail reads more of the beginning."""
    tail_places: int = 0
    """Places at the end that belong to tails, or did while others still do."""
    most_tail_places: int = 0
    """The most that there were at a time."""

    @property
    def end(self) -> int:
        """Where the tails begin."""
        capacity = self.stacks[0].keys.size(2) if self.stacks else 0
        return capacity - self.tail_places

    def has_places(self, count: int) -> bool:
        """Whether so many are left between the owner's tokens, or what tails read, and the tails."""
        held = self.shared_length if self.owner is None else max(self.owner.length, self.shared_length)
        return held + count <= self.end

    def add_tail(self, base: int, room: int) -> "Tail":
        """A tail of `room` places, of which as many must be left."""
        self.tail_places += room
        self.most_tail_places = max(self.most_tail_places, self.tail_places)
        tail = Tail(self, base, self.end, room)
        self.tails.add(tail)
        self.shared_length = max(self.shared_length, base)
        return tail

    def lose_owner(self) -> None:
        """Others may write over what the owner had, but for what tails read."""
        self.owner = None
        if self.tails:
            self.token_ids = []

    def remove_tail(self, tail: "Tail") -> None:
        self.tails.remove(tail)
        if not self.tails:
            self.shared_length = self.tail_places = 0


@dataclass(eq=False)
class Tail:
    """The tokens of a fork after the beginning that it reads in the slab of another sequence."""

    slab: Slab
    base: int
    """Length of the beginning: the position of its own first token."""
    first: int
    """Where that token is stored; those after it follow."""
    room: int
    """Tokens for which it has places."""
    path: "array[int]" = field(init=False)
    """The places: int64 `[room]`."""

    def __post_init__(self) -> None:
        self.path = array("q", range(self.first, self.first + self.room))

    @property
    def path_address(self) -> int:
        return self.path.buffer_info()[0]

    @property
    def stacks(self) -> list[Stack]:
        return self.slab.stacks

    @property
    def shift(self) -> int:
        """From the position of an own token to its place."""
        return self.first - self.base

    @property
    def is_alone(self) -> bool:
        """Whether no other sequence has tokens in the slab."""
        return self.slab.owner is None and len(self.slab.tails) == 1


Storage: TypeAlias = Slab | Tail
"""What a contiguous cache stores in a holding."""


def slab_of(storage: Storage) -> Slab:
    return storage.slab if isinstance(storage, Tail) else storage


def stretches(storage: Storage, start: int, end: int) -> list[slice]:
    """Where the tokens at positions `start` .. `end` - 1 are stored, in order."""
    if isinstance(storage, Slab) or end <= storage.base:
        return [slice(start, end)]
    own = slice(max(start, storage.base) + storage.shift, end + storage.shift)
    return [own] if start >= storage.base else [slice(start, storage.base), own]


def check_places(holding: Holding, block_size: int) -> None:
    """Asserts that a sequence has places for its tokens, and that no other one's are among them."""
    storage: Storage = holding.storage
    if isinstance(storage, Slab):
        assert storage.owner is holding, "a slab has another owner"
        assert holding.length <= storage.end <= storage.block_count * block_size, "a slab is too small"
        return
    assert storage.base <= holding.length <= storage.base + storage.room, "a tail is too short"
    assert storage.base <= storage.slab.shared_length <= storage.slab.end <= storage.first, "a tail may be written over"
    ends = sorted((tail.first, tail.first + tail.room) for tail in storage.slab.tails)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends)), "two tails overlap"
