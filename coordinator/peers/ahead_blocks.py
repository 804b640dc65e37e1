"""Prepared proposals: what a draft sends for the likely outcomes of a round, before it is asked for the next."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from specpair.v1 import draft_service_pb2, proposal_pb2

GENERATIONS = 2
"""Steps whose blocks are kept: that of the next round, and one before it."""
MOST_BYTES = 16 * 1024 * 1024
"""Largest size of the blocks of one step; those beyond are dropped."""


class BlockFate(StrEnum):
    """What became of a prepared proposal."""

    USED = "used"
    UNUSED = "unused"
    """The verdict was another one."""
    STALE = "stale"
    """Its step was over, or unknown, when it came."""


class BlockKey(NamedTuple):
    """What a prepared proposal is for: a step, and the verdict before it."""

    step: int
    """The step that it is for."""
    base_length: int
    """Committed tokens before the proposal of the step before."""
    accepted_count: int
    next_token_id: int


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What the draft shall prepare for the step after the one that it is asked for."""

    max_outcomes: int
    count: int
    """Tokens of each proposal."""
    min_confidence: float
    max_length: int
    """The longest that the sequence may become with a prepared proposal."""
    withholds: bool = False
    """Whether proposals come without their distributions."""


@dataclass(frozen=True, kw_only=True)
class PreparedBlock:
    """One prepared proposal."""

    key: BlockKey
    proposal: proposal_pb2.Proposal
    compute: float
    """Seconds from its first forward pass to its last token, at most those since it was asked for."""
    arrived_at: float
    """By time.perf_counter."""

    @property
    def length(self) -> int:
        """Committed tokens before it."""
        return self.key.base_length + self.key.accepted_count + 1

    @property
    def is_bare(self) -> bool:
        """Whether its distributions were withheld: the draft has to be asked for them."""
        return is_bare(self.proposal)


def is_bare(proposal: proposal_pb2.Proposal) -> bool:
    """Whether the distributions of a proposal were withheld."""
    return proposal.distributions.HasField("withheld")


def prepared_block(message: draft_service_pb2.AheadBlock, asked_at: float) -> PreparedBlock:
    """The block that has just arrived, asked for at `asked_at`; it does not keep the whole message alive."""
    proposal = proposal_pb2.Proposal()
    proposal.CopyFrom(message.proposal)
    arrived_at = time.perf_counter()
    return PreparedBlock(
        key=BlockKey(message.step, message.base_length, message.accepted_count, message.next_token_id),
        proposal=proposal,
        compute=min(message.compute_time_us * 1e-6, arrived_at - asked_at),
        arrived_at=arrived_at,
    )


class BlockInbox:
    """Gives the blocks of one draft's stream to the sequences that expect them."""

    def __init__(self, counts: dict[BlockFate, int] | None = None):
        """`counts` is shared by all drafts."""
        self.counts = dict.fromkeys(BlockFate, 0) if counts is None else counts
        self._sequences: dict[str, AheadBlocks] = {}

    def receive(self, message: draft_service_pb2.AheadBlock) -> None:
        """Takes a block; one of a sequence that is not known is dropped."""
        blocks = self._sequences.get(message.sequence_id)
        if blocks is None or not blocks.add(message):
            self.counts[BlockFate.STALE] += 1

    def follow(self, name: str, blocks: "AheadBlocks") -> None:
        self._sequences[name] = blocks

    def forget(self, name: str) -> None:
        self._sequences.pop(name, None)


class _Generation:
    """The blocks of one step."""

    def __init__(self, step: int, base_length: int, most: int):
        self.step = step
        self.base_length = base_length
        self.most = most
        """Blocks that were asked for."""
        self.asked_at = time.perf_counter()
        self.size = 0
        self.blocks: dict[BlockKey, PreparedBlock] = {}
        self.used_count = 0


def ignore(block: PreparedBlock) -> None:
    """For an output that waits for no blocks."""


class AheadBlocks:
    """The blocks of one sequence, where it is open at present, of the last two steps.

    A block is used only if its whole key is equal to that of the round that needs it, so a late, a repeated or an
    unexpected one can do no harm.
    """

    def __init__(self, on_block: Callable[[PreparedBlock], None] = ignore):
        """`on_block` is called with each block that may be needed, when it arrives."""
        self.on_block = on_block
        self._inbox: BlockInbox | None = None
        self._name = ""
        self._generations: list[_Generation] = []
        """The newest last."""
        self._wanted: tuple[BlockKey, asyncio.Future[PreparedBlock]] | None = None

    def expect(self, inbox: BlockInbox, name: str, step: int, base_length: int, most: int) -> None:
        """Expects at most `most` blocks for `step`, of the sequence that this draft holds under this name.

        `base_length` is the number of committed tokens before the proposal of the step before.
        """
        if (inbox, name) != (self._inbox, self._name):
            self.clear()
            self._inbox, self._name = inbox, name
            inbox.follow(name, self)
        if not any((known.step, known.base_length) == (step, base_length) for known in self._generations):
            self._generations.append(_Generation(step, base_length, most))
        while len(self._generations) > GENERATIONS:
            self._drop(self._generations.pop(0))

    def clear(self) -> None:
        """Drops everything, and expects no block any more."""
        if self._inbox is not None:
            self._inbox.forget(self._name)
            for generation in self._generations:
                self._drop(generation)
        self._generations.clear()
        self._inbox = None

    def add(self, message: draft_service_pb2.AheadBlock) -> bool:
        """Takes a block that has just come; returns whether it was expected."""
        generation = self._generation(message.step, message.base_length)
        if generation is None or len(generation.blocks) + generation.used_count >= generation.most:
            return False
        size = message.proposal.ByteSize()
        if generation.size + size > MOST_BYTES:
            return False
        block = prepared_block(message, generation.asked_at)
        if block.key in generation.blocks:
            return False
        generation.size += size
        generation.blocks[block.key] = block
        if self._wanted is not None and self._wanted[0] == block.key and not self._wanted[1].done():
            self._wanted[1].set_result(block)
        else:
            self.on_block(block)
        return True

    def of_step(self, step: int) -> Iterator[PreparedBlock]:
        """The blocks for this step, in the order in which they came."""
        for generation in self._generations:
            if generation.step == step:
                yield from generation.blocks.values()

    @property
    def have_come(self) -> bool:
        """Whether any came for the last two steps: a draft that lost the sequence sends none, nor one that never works
        ahead."""
        return any(generation.blocks or generation.used_count for generation in self._generations)

    def key(self, step: int, history: Sequence[int]) -> BlockKey | None:
        """What a block for the round that begins now is for; None if none are expected."""
        for generation in self._generations:
            accepted_count = len(history) - generation.base_length - 1
            if generation.step == step and accepted_count >= 0:
                return BlockKey(step, generation.base_length, accepted_count, history[-1])
        return None

    def take(self, key: BlockKey) -> PreparedBlock | None:
        """The block for this key, if it is there."""
        generation = self._generation(key.step, key.base_length)
        block = None if generation is None else generation.blocks.pop(key, None)
        if generation is not None and block is not None:
            generation.used_count += 1
            self._count(BlockFate.USED, 1)
        return block

    async def wait(self, key: BlockKey) -> PreparedBlock:
        """The block for this key, once it comes."""
        if (ready := self.take(key)) is not None:
            return ready
        future: asyncio.Future[PreparedBlock] = asyncio.get_running_loop().create_future()
        self._wanted = (key, future)
        try:
            block = await future
        finally:
            self._wanted = None
        self.take(key)
        return block

    def _generation(self, step: int, base_length: int) -> _Generation | None:
        return next((g for g in self._generations if (g.step, g.base_length) == (step, base_length)), None)

    def _drop(self, generation: _Generation) -> None:
        self._count(BlockFate.UNUSED, len(generation.blocks))

    def _count(self, fate: BlockFate, count: int) -> None:
        if self._inbox is not None:
            self._inbox.counts[fate] += count
