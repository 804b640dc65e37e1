"""Drafting: K tokens for every waiting sequence, one forward pass per step for all of them.

Each token is drawn from exactly the distribution that is sent: encoded first, then sampled from what the
encoding says (rule 1 of exactness in the design).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specpair.engine.host import ModelHost
from specpair.engine.sequence import Work
from specpair.engine.sequence_store import HeldSequence
from specpair.errors import NotFiniteError
from specpair.options import Encoding, Rule, SamplingOptions, SequenceOptions, check_range
from specpair.speculation.adjustments import adjust
from specpair.speculation.drafting import SparseRows, draw, draw_counts, sparsify
from specpair.speculation.gumbel import choose
from specpair.speculation.randomness import Domain, random_bits, uniforms
from specpair.speculation.sampling import SamplingRows, probabilities, samplable_rows
from specpair.wire.distributions import dense_draft_rows


@dataclass(frozen=True, kw_only=True)
class ProposeCall:
    """A call, checked for form."""

    sequence_id: str
    step: int
    base_length: int
    appended: list[int]
    count: int


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A proposal: the tokens and the distributions they were drawn from, which under the coupled rule stay here."""

    tokens: list[int]
    sparse: list[SparseRows]
    """One row for each token if they travel sparse."""
    dense: list[Tensor]
    """One row `[vocabulary]` float32 for each token if they travel dense."""
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the last token."""


@dataclass(eq=False, kw_only=True)
class ProposeWork(Work):
    """The engine's view of a call: one row per step, until all tokens are drawn."""

    held: HeldSequence[Drafted]
    step: int
    count: int
    tokens: list[int] = field(default_factory=list)
    sparse: list[SparseRows] = field(default_factory=list)
    dense: list[Tensor] = field(default_factory=list)

    @property
    def options(self) -> SequenceOptions:
        return self.held.options


class Drafter(ModelHost[Drafted]):
    """The draft model with its sequences."""

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        """Registers a sequence and feeds it without being asked, while the target feeds its own."""
        options = replace(options, sampling=self._own(options.sampling))
        held = self.sequences.open(sequence_id, token_ids, prompt_length, options)
        if held.prefill is None and held.last_step < 0:
            held.prefill = asyncio.get_running_loop().create_task(self._prefill(held))
            held.prefill.add_done_callback(report_nothing)

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        sampling = None if sampling is None else self._own(sampling)
        return await super().fork(sequence_id, forked_sequence_id, length, sampling)

    async def propose(self, call: ProposeCall, body: object) -> Drafted:
        """The proposal of one call, drawn once for each step."""
        check_range("num_speculative_tokens", call.count, 1, self.max_num_speculative_tokens)

        async def compute(held: HeldSequence[Drafted]) -> Drafted:
            return await self._draft(held, call)

        return await self.sequences.step(call.sequence_id, call.step, body, compute)

    def _own(self, sampling: SamplingOptions) -> SamplingOptions:
        """What the options say of this model's tokens; the target's vocabulary may be padded further."""
        return sampling.within(self.loaded.vocab_size)

    async def _prefill(self, held: HeldSequence[Drafted]) -> None:
        await self.engine.run(Work(sequence=held.cached, row_count=0))

    async def _draft(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        self.sequences.check_position(held, call.base_length, call.appended, 1)
        room = self.sequences.limits.max_model_len - call.base_length - len(call.appended)
        self.sequences.commit(held, call.base_length, call.appended)
        committed = held.length
        work = ProposeWork(
            sequence=held.cached,
            row_count=1,
            held=held,
            step=call.step,
            count=min(call.count, room),
        )
        try:
            await self.engine.run(work)
        except Exception:
            held.cached.replace_from(committed, [])
            raise
        return Drafted(
            tokens=work.tokens,
            sparse=work.sparse,
            dense=work.dense,
            queue_time=work.queue_time,
            compute_time=work.compute_time,
        )

    @staticmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)


def report_nothing(prefill: "asyncio.Task[None]") -> None:
    """What went wrong shows in the call that needs the prefill, which does it again."""
    if not prefill.cancelled():
        prefill.exception()


def advance(works: list[Work], logits: Tensor) -> None:
    """Draws the next token of every work: logits `[proposing works, vocabulary]`."""
    proposing = [work for work in works if isinstance(work, ProposeWork)]
    mask_vocabulary(proposing, logits)
    adjusted = adjust(logits, [work.held.row_block(1, logits.device) for work in proposing])
    finite = samplable_rows(logits, adjusted).tolist()
    for work, is_finite in zip(proposing, finite, strict=True):
        if not is_finite:
            end_early(work)
    for sample in (sample_sparse, sample_dense, sample_coupled):
        chosen = [i for i, work in enumerate(proposing) if not work.done and sampler_of(work.options) is sample]
        if not chosen:
            continue
        members = [proposing[i] for i in chosen]
        rows = SamplingRows.of([w.options.sampling for w in members], logits.device)
        sample(members, probabilities(adjusted if len(chosen) == len(proposing) else adjusted[chosen], rows))


def sampler_of(options: SequenceOptions) -> Callable[[list[ProposeWork], Tensor], None]:
    """How a sequence's tokens are drawn; the rule comes first, because under the coupled rule nothing travels."""
    if options.rule is Rule.COUPLED:
        return sample_coupled
    return sample_sparse if options.encoding is Encoding.SPARSE else sample_dense


def end_early(work: ProposeWork) -> None:
    """The next row cannot be sampled from. What was drawn is sent all the same: to drop a token for what came after
    it would bias the output (rule 8 of exactness in the design)."""
    work.done = True
    if not work.tokens:
        work.error = NotFiniteError()


def mask_vocabulary(works: list[ProposeWork], logits: Tensor) -> None:
    """Takes away the ids that the target does not have."""
    for row, work in enumerate(works):
        if work.options.vocab_size is not None and work.options.vocab_size < logits.size(1):
            logits[row, work.options.vocab_size :] = float("-inf")


def sample_sparse(works: list[ProposeWork], rows: Tensor) -> None:
    """Encodes as integer counts, then draws from the counts."""
    on_device = sparsify(rows)
    sparse = SparseRows(on_device.token_ids.cpu(), on_device.counts.cpu())
    tokens = draw_counts(sparse, torch.as_tensor(random_bits(*noise_keys(works)))).tolist()
    for i, (work, token) in enumerate(zip(works, tokens, strict=True)):
        work.sparse.append(sparse.select(slice(i, i + 1)))
        take(work, token)


def sample_dense(works: list[ProposeWork], rows: Tensor) -> None:
    """Draws from the float32 probabilities as the target will read them."""
    tokens = draw(
        dense_draft_rows(rows).probabilities, torch.as_tensor(uniforms(*noise_keys(works))).to(rows.device)
    ).tolist()
    for work, token, row in zip(works, tokens, rows, strict=True):
        own = row[: work.options.vocab_size].float().cpu()
        work.dense.append(own.clone())  # a view would keep the whole batch alive
        take(work, token)


def sample_coupled(works: list[ProposeWork], rows: Tensor) -> None:
    """Chooses with the noise with which the target will choose."""
    seeds = [work.options.sampling.seed for work in works]
    positions = [len(work.sequence.tokens) for work in works]
    for work, token in zip(works, choose(rows, seeds, positions).tolist(), strict=True):
        take(work, token)


def noise_keys(works: list[ProposeWork]) -> tuple[list[int], Domain, list[int], list[int]]:
    """Keys of the next draw: the step at which the block is verified, and the offset in the block."""
    seeds = [work.options.sampling.seed for work in works]
    return seeds, Domain.DRAFT, [work.step for work in works], [len(work.tokens) for work in works]


def take(work: ProposeWork, token: int) -> None:
    """The token is drawn; it is fed next unless it is the last."""
    work.tokens.append(token)
    work.done = len(work.tokens) == work.count
    work.sequence.tokens.append(token)
