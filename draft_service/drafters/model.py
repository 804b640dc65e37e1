"""Drafter: the draft model. K tokens for every waiting sequence, with one forward pass per step for all of them.

Each token is drawn from exactly the distribution that is sent: encoded first, then sampled from what the
encoding says (docs/exactness.md, rule 1).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from draft_service.drafters.interface import Proposer
from draft_service.drafters.model_trees import TreeWork, advance_trees, can_grow_trees, new_growth
from draft_service.proposal import Drafted, ProposeCall
from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.options import Drafter, Encoding, Rule, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.adjustments import adjust
from specpair.speculation.arrays import native, placed
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.draft_rows import draw
from specpair.speculation.gumbel import choose, choose_and_look
from specpair.speculation.outlook import WIDTH, Outlook, of_logits
from specpair.speculation.randomness import BITS, Domain, random_bits
from specpair.speculation.sampling import SamplingRows, came_of_finite, finite_rows, likeliest, probabilities
from specpair.speculation.sparse_rows import draw_counts, sparsify
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.wire.distributions import decoded_dense


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

    def __post_init__(self) -> None:
        self.options = self.held.options
        self.sampler = sampler_of(self.options)

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
            was_prepared=was_prepared,
        )


Sampler: TypeAlias = Callable[[list[ProposeWork], Tensor], None]
"""Draws the next tokens of works from their adjusted logits."""


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
        try:
            await self._engine.run(work)
        except Exception:
            held.cached.replace_from(held.length, [])
            raise
        return work.drafted()

    async def _propose_tree(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        limits = GrowthLimits(max_nodes=call.max_tree_tokens, max_depth=call.count, min_weight=call.min_confidence)
        growth = new_growth(held.options, limits)
        work = TreeWork(sequence=held.cached, row_count=1, held=held, step=call.step, growth=growth)
        try:
            await self._engine.run(work)
        except Exception:
            held.cached.replace_from(held.length, [])
            raise
        return work.drafted()

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
    advance_chains([work for work in works if isinstance(work, ProposeWork)], logits)


def advance_chains(proposing: list[ProposeWork], logits: Tensor) -> None:
    """Draws the next token of every work from logits `[works, vocabulary]`."""
    mask_vocabulary(proposing, logits)
    adjusted = adjust_rows(proposing, logits)
    chosen: dict[Sampler, list[int]] = {}
    for i, work in enumerate(proposing):
        if not work.done:
            chosen.setdefault(work.sampler, []).append(i)
    for sample, places in chosen.items():
        rows = adjusted if len(places) == len(proposing) else adjusted[places]
        sample([proposing[i] for i in places], rows)
    end_unsure(proposing, adjusted)


def adjust_rows(works: list[ProposeWork], logits: Tensor) -> Tensor:
    """Applies the options to the logits. Ends works with a row that is not finite before the options, which could hide
    it; the samplers find rows that are not finite afterwards."""
    if not any(work.options.sampling.adjusts_logits for work in works):
        return logits
    for work, is_finite in zip(works, finite_rows(logits).tolist(), strict=True):
        if not is_finite:
            end_early(work)
    return adjust(logits, [work.held.row_block(1, logits.device) for work in works])


def sampler_of(options: SequenceOptions) -> "Sampler":
    """How a sequence's tokens are drawn from its adjusted logits. Under the coupled rule no distributions are sent."""
    is_coupled = options.rule is Rule.COUPLED
    if options.encoding is Encoding.DENSE and not is_coupled:
        return sample_dense
    if options.sampling.is_greedy:
        return sample_greedy
    return sample_coupled if is_coupled else sample_sparse


def end_early(work: ProposeWork) -> None:
    """The next row cannot be sampled from. What was drawn is sent all the same: to drop a token for what came after
    it would bias the output (docs/exactness.md, rule 8)."""
    work.done = True
    if not work.tokens:
        work.error = NotFiniteError()


def end_unsure(works: list[ProposeWork], adjusted: Tensor) -> None:
    """Ends works whose confidence is below their minimum; their tokens are kept (rule 8). Uses the adjusted logits
    `[works, vocabulary]` at temperature 1, so that confidence is meaningful for greedy sequences too."""
    asked = [row for row, work in enumerate(works) if work.min_confidence and not work.done]
    if not asked:
        return
    tokens = torch.tensor([[works[row].tokens[-1]] for row in asked], device=adjusted.device)
    shares = adjusted[asked].softmax(-1).gather(-1, tokens)[:, 0].tolist()
    for row, share in zip(asked, shares, strict=True):
        works[row].confidence *= share
        works[row].done = works[row].confidence < works[row].min_confidence


def mask_vocabulary(works: list[ProposeWork], logits: Tensor) -> None:
    """Masks the ids that the target does not have, in place."""
    for row, work in enumerate(works):
        if work.options.vocab_size is not None and work.options.vocab_size < logits.size(1):
            logits[row, work.options.vocab_size :] = float("-inf")


def sample_greedy(works: list[ProposeWork], adjusted: Tensor) -> None:
    """Takes the likeliest token. It is certain, so it needs no draw under any rule."""
    tokens, finite = likeliest(adjusted)
    note_outlooks(works, lambda rows: of_logits(adjusted[rows]))
    for work, token, is_finite in zip(works, tokens.tolist(), finite, strict=True):
        if not is_finite:
            end_early(work)
            continue
        if work.options.rule is not Rule.COUPLED:
            work.counts.append(CountRow((token,), (TOTAL,)))
        take(work, token)


def sample_sparse(works: list[ProposeWork], adjusted: Tensor) -> None:
    """Encodes rows as integer counts, then draws from the counts."""
    for work, row in zip(works, sparsify(distributions(works, adjusted)), strict=True):
        if not len(row.token_ids):
            end_early(work)
            continue
        work.counts.append(row)
        take(work, draw_counts(row, next_bits(work)))


def sample_dense(works: list[ProposeWork], adjusted: Tensor) -> None:
    """Draws from the float32 probabilities as the target will decode them."""
    rows = distributions(works, adjusted)
    if any(work.looks and work.options.sampling.is_greedy for work in works):
        note_outlooks(works, lambda some: of_logits(adjusted[some]))
    uniforms = np.array([next_bits(work) for work in works]) * 2.0**-BITS
    tokens = draw(native(decoded_dense(rows)), placed(uniforms, rows.device)).tolist()
    for work, token, row, is_finite in zip(works, tokens, rows, finite_rows(adjusted).tolist(), strict=True):
        if not is_finite:
            end_early(work)
            continue
        own = row[: work.options.vocab_size].float().cpu()
        work.dense.append(own.clone())  # a view would keep the whole batch alive
        take(work, token)


def sample_coupled(works: list[ProposeWork], adjusted: Tensor) -> None:
    """Chooses with the same noise as the target will."""
    rows = distributions(works, adjusted)
    seeds = [work.options.sampling.seed for work in works]
    positions = [len(work.sequence.tokens) for work in works]
    if any(work.looks for work in works):
        choices, outlooks = choose_and_look(rows, seeds, positions, WIDTH)
        note_outlooks(works, lambda some: [outlooks[i] for i in some])
    else:
        choices = choose(rows, seeds, positions)
    finite = came_of_finite(native(rows))
    for work, token, is_finite in zip(works, choices.tolist(), finite, strict=True):
        if is_finite:
            take(work, token)
        else:
            end_early(work)


def note_outlooks(works: list[ProposeWork], outlooks: Callable[[list[int]], list[Outlook]]) -> None:
    """Notes in the works that look for them the outlooks of their rows."""
    looking = [row for row, work in enumerate(works) if work.looks]
    if looking:
        for row, outlook in zip(looking, outlooks(looking), strict=True):
            works[row].outlooks.append(outlook)


def distributions(works: list[ProposeWork], adjusted: Tensor) -> Tensor:
    """The distributions from which tokens are drawn, `[works, vocabulary]`."""
    rows = SamplingRows([work.options.sampling for work in works], [1] * len(works), adjusted.device)
    return probabilities(adjusted, rows)


def next_bits(work: ProposeWork) -> int:
    """The next random bits of a work, keyed by the step that verifies the block and the offset in the block."""
    if not work.bits:
        work.bits = random_bits(work.options.sampling.seed, Domain.DRAFT, work.step, work.count).tolist()
    return work.bits[len(work.tokens)]


def take(work: ProposeWork, token: int) -> None:
    """Adds a drawn token; the engine feeds it next unless it is the last."""
    work.tokens.append(token)
    work.done = len(work.tokens) == work.count
    work.sequence.tokens.append(token)
