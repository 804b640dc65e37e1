"""Drafter: the draft model. K tokens for every waiting sequence, with one forward pass per step for all of them."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from draft_service.drafters.interface import Proposer
from draft_service.drafters.model_trees import TreeWork, advance_trees, can_grow_trees, new_growth
from draft_service.proposal import Drafted, ProposeCall
from specpair.drafting import draw_next, sampler_of
from specpair.engine.work import Work
from specpair.options import Drafter
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.count_row import CountRow
from specpair.speculation.outlook import Outlook
from specpair.speculation.trees.ranked_growth import GrowthLimits


@dataclass(eq=False, kw_only=True)
class ProposeWork(Work):
    """The engine's work for a call: one row per step, until all tokens are drawn."""

    held: HeldSequence[Drafted]
    step: int
    count: int
    min_confidence: float = 0.0
    """Drafting stops once `confidence` is below this; 0 never stops."""
    confidence: float = 1.0
    """Product of the drawn tokens' probabilities at temperature 1; stays 1 if min_confidence is 0."""
    tokens: list[int] = field(default_factory=list)
    counts: list[CountRow] = field(default_factory=list)
    dense: list[Tensor] = field(default_factory=list)
    bits: list[int] = field(default_factory=list)
    """Random bits for its tokens, drawn together."""
    looks: bool = False
    """Whether to note the outlooks of rows that are not sent."""
    outlooks: list[Outlook] = field(default_factory=list)
    rank: int = 0
    """Place in the outlook of the first row of the token that is taken from it; 0: the drawn one."""
    race_step: int | None = None
    """The step whose own token of the target, foreseen by its race, is the first one: that of the `rank`. None: the
    first token is drawn."""
    looks_beyond: bool = False
    """Whether to look at the row after the last token, too, while nobody waits for it, if the runner draws it whole."""
    beyond: list[CountRow] = field(default_factory=list)
    """That row, if it was looked at and rows are sent; else its outlook is the last one."""
    takes_steps: bool = False
    """Whether it is drawn token by token because the runner cannot draw it whole."""

    def __post_init__(self) -> None:
        self.options = self.held.options
        self.sampler = sampler_of(self.options)

    @property
    def steps_left(self) -> int:
        return self.count - len(self.tokens)

    def drafted(self, *, was_prepared: bool = False) -> Drafted:
        """The proposal, once the work is done."""
        return Drafted(
            drafter=Drafter.MODEL,
            tokens=self.tokens,
            counts=self.counts,
            dense=self.dense,
            queue_time=0.0 if was_prepared else self.queue_time,
            compute_time=self.compute_time,
            batch_size=self.largest_batch.sequence_count if self.largest_batch else 0,
            rollback_time=self.rollback_time,
            outlooks=tuple(self.outlooks),
            beyond=tuple(self.beyond),
            was_prepared=was_prepared,
        )


class WorkRunner(Protocol):
    """The part of the engine that the drafter uses."""

    async def run(self, work: Work) -> None:
        """Runs the work and waits for it. Raises its error."""
        ...


class ModelDrafter(Proposer):
    """The draft model."""

    def __init__(self, engine: WorkRunner):
        self._engine = engine

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """Prefills the sequence ahead of its first call, while the target prefills its own."""
        if held.prefill is None and held.last_step < 0:
            held.prefill = asyncio.get_running_loop().create_task(self._prefill(held))
            held.prefill.add_done_callback(report_nothing)

    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        if call.max_tree_tokens and can_grow_trees(held.options):
            return await self._propose_tree(held, call)
        work = ProposeWork(
            sequence=held.cached,
            row_count=1,
            held=held,
            step=call.step,
            count=call.count,
            min_confidence=call.min_confidence,
            looks=call.looks,
        )
        await self._run(held, work)
        return work.drafted()

    async def _propose_tree(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        limits = GrowthLimits(max_nodes=call.max_tree_tokens, max_depth=call.count, min_weight=call.min_confidence)
        growth = new_growth(held.options, limits)
        work = TreeWork(sequence=held.cached, row_count=1, held=held, step=call.step, growth=growth)
        await self._run(held, work)
        return work.drafted()

    async def _run(self, held: HeldSequence[Drafted], work: Work) -> None:
        """Runs the work; if it fails, no drafted tokens are left."""
        try:
            await self._engine.run(work)
        except Exception:
            held.cached.replace_from(held.length, [])
            raise

    async def _prefill(self, held: HeldSequence[Drafted]) -> None:
        await self._engine.run(Work(sequence=held.cached, row_count=0))


def report_nothing(prefill: "asyncio.Task[None]") -> None:
    """Retrieves the prefill's exception, so that asyncio does not log it: the first call repeats the prefill."""
    if not prefill.cancelled():
        prefill.exception()


def advance(works: list[Work], logits: Tensor) -> None:
    """Goes on with every work, from its rows of logits `[sum of row counts, vocabulary]`."""
    growing = [work for work in works if isinstance(work, TreeWork)]
    if growing:
        rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
        advance_trees(growing, torch.cat([rows[work] for work in growing]))
        works = [work for work in works if work not in growing]
        if not works:
            return
        logits = torch.cat([rows[work] for work in works])
    draw_next([work for work in works if isinstance(work, ProposeWork)], logits)
