"""Beams of the draft model, continued token by token, with one forward pass for each."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draft_service.drafters.model import WorkRunner
from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.beams.beam_growth import BeamGrowth
from specpair.speculation.beams.beam_search import Continuation
from specpair.speculation.largest import largest
from specpair.speculation.sampling import finite_rows

ANSWER_BYTES = 1024
NODE_BYTES = 128
"""Memory of a token and its parent, in lists."""


@dataclass(frozen=True, kw_only=True)
class GrownBeams:
    """Continuations of beams: tokens, with their parents in the tree that they continue."""

    tokens: list[int]
    parents: list[int]
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the last token."""
    rollback_time: float
    batch_size: int
    """Sequences in the largest forward pass."""

    @property
    def byte_count(self) -> int:
        """Approximate memory in bytes."""
        return ANSWER_BYTES + NODE_BYTES * len(self.tokens)


@dataclass(eq=False, kw_only=True)
class BeamWork(Work):
    """The engine's work for one call. Each pass feeds the whole tree so far."""

    growth: BeamGrowth
    vocab_size: int
    """Token ids at or above it are never proposed."""
    fed_count: int = field(init=False)
    """Nodes that the sequence has after its committed tokens."""

    def __post_init__(self) -> None:
        self.fed_count = len(self.growth.tree)

    def take(self, logits: Tensor) -> None:
        """Grows the beams by a token, from the logits `[row_count, vocabulary]`, and feeds the tree again."""
        growth = self.growth
        rows = logits[[1 + node for node in growth.frontier], : self.vocab_size]
        if not bool(finite_rows(rows).all()):
            self.fail(NotFiniteError())
            return
        count = min(growth.plan.top_count, rows.shape[1])
        values, ids = largest(rows.float().log_softmax(-1).contiguous(), count)
        growth.extend(
            [list(map(Continuation, *row)) for row in zip(ids.tolist(), values.tolist(), strict=True)],
        )
        tokens = self.sequence.tokens
        del tokens[len(tokens) - self.fed_count :]
        self.done = not growth.frontier
        if not self.done:
            tokens += growth.tree.tokens
            self.fed_count = len(growth.tree)
            self.parents = tuple(growth.tree.parents)
            self.row_count = 1 + self.fed_count


class BeamGrower:
    """Runs on the event loop."""

    def __init__(self, engine: WorkRunner):
        self._engine = engine

    async def grow(self, held: HeldSequence[Any], growth: BeamGrowth, vocab_size: int) -> GrownBeams:
        """Continues beams after the sequence's committed tokens, which stay as they are."""
        work = BeamWork(
            sequence=held.cached,
            row_count=1 + len(growth.tree),
            parents=tuple(growth.tree.parents) or None,
            growth=growth,
            vocab_size=vocab_size,
        )
        if growth.frontier:
            held.cached.replace_from(held.length, growth.tree.tokens)
            try:
                await self._engine.run(work)
            except Exception:
                held.cached.replace_from(held.length, [])
                raise
        return GrownBeams(
            tokens=growth.tree.tokens[growth.first :],
            parents=growth.tree.parents[growth.first :],
            queue_time=work.queue_time,
            compute_time=work.compute_time,
            rollback_time=work.rollback_time,
            batch_size=work.largest_batch.sequence_count if work.largest_batch else 0,
        )


def advance_beams(works: list[Work], logits: Tensor) -> tuple[list[Work], Tensor]:
    """Goes on with the works that grow beams, from logits `[sum of row counts, vocabulary]`. Returns the other works
    with their rows."""
    if not any(isinstance(work, BeamWork) for work in works):
        return works, logits
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    others = [work for work in works if not isinstance(work, BeamWork)]
    left = torch.cat([rows[work] for work in others]) if others else logits[:0]
    for work in works:
        if isinstance(work, BeamWork):
            work.take(rows[work])
    return others, left
