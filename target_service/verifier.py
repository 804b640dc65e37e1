"""Verification of proposals: many sequences, one forward pass, one vectorised judgement.

The rules are `specpair.speculation`'s; here they meet the engine. Only verdicts leave the device.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from uuid import uuid4

import torch
from torch import Tensor

from specpair.engine.host import ModelHost
from specpair.engine.sequence import Work
from specpair.engine.sequence_store import HeldSequence
from specpair.errors import NotFiniteError
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.speculation.adjustments import adjust
from specpair.speculation.coupling import verify_coupled
from specpair.speculation.drafting import DraftRows, stack_blocks
from specpair.speculation.lenience import Lenience, closeness
from specpair.speculation.logprobs import TokenLogprobs, token_logprobs
from specpair.speculation.randomness import Domain, uniforms
from specpair.speculation.sampling import SamplingRows, probabilities, samplable_rows
from specpair.speculation.verification import Verdicts, first_rows, verify
from target_service.scoring import ScoreWork, score

WIDE_SUPPORT = 2048
"""Tokens in a draft's distribution beyond which it is not padded together with ordinary ones."""


@dataclass(frozen=True, kw_only=True)
class VerifyCall:
    """A call, decoded and checked for form."""

    sequence_id: str
    step: int
    base_length: int
    appended: list[int]
    proposed: list[int]
    draft: DraftRows
    """The distributions of the proposed tokens, `[K, support]`."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a proposal."""

    accepted_count: int
    next_token: int
    length: int
    """Committed tokens after it."""
    logprobs: list[TokenLogprobs]
    """Of the committed tokens, if the sequence wants them."""
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the verdict."""


@dataclass(eq=False, kw_only=True)
class VerifyWork(Work):
    """The engine's view of a call: its rows are the last committed token and the proposed tokens."""

    held: HeldSequence[Verdict]
    call: VerifyCall
    accepted_count: int = 0
    next_token: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def options(self) -> SequenceOptions:
        return self.held.options

    @property
    def first_position(self) -> int:
        """Position of the token that the first row decides."""
        return len(self.sequence.tokens) - len(self.call.proposed)


class Verifier(ModelHost[Verdict]):
    """The target model with its sequences."""

    async def verify(self, call: VerifyCall, body: object) -> Verdict:
        """The verdict on one call, given once for each step. Commits the accepted tokens and the next one."""

        async def compute(held: HeldSequence[Verdict]) -> Verdict:
            return await self._judge(held, call)

        return await self.sequences.step(call.sequence_id, call.step, body, compute)

    async def score(self, token_ids: list[int], top_count: int) -> list[TokenLogprobs]:
        """Logprobs of all tokens but the first. What was computed is kept for sequences that begin alike."""
        name = f"score-{uuid4().hex}"
        held = self.sequences.open(name, token_ids, len(token_ids), SequenceOptions(sampling=SamplingOptions()))
        try:
            return await score(self.engine, held.cached, top_count, self.config.max_num_batched_tokens)
        finally:
            self.sequences.close(name)

    async def _judge(self, held: HeldSequence[Verdict], call: VerifyCall) -> Verdict:
        self.sequences.check_position(held, call.base_length, call.appended, len(call.proposed))
        self.sequences.commit(held, call.base_length, call.appended)
        committed = held.length
        held.cached.replace_from(committed, call.proposed)
        work = VerifyWork(sequence=held.cached, row_count=len(call.proposed) + 1, held=held, call=call)
        try:
            await self.engine.run(work)
        except Exception:
            held.cached.replace_from(committed, [])
            raise
        held.length = committed + work.accepted_count + 1
        return Verdict(
            accepted_count=work.accepted_count,
            next_token=work.next_token,
            length=held.length,
            logprobs=work.logprobs,
            queue_time=work.queue_time,
            compute_time=work.compute_time,
        )

    @staticmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)


def advance(works: list[Work], logits: Tensor) -> None:
    """Looks at every work whose rows are there: logits `[sum of row counts, vocabulary]`."""
    rows = logits.split([work.row_count for work in works])
    for work, own in zip(works, rows, strict=True):
        if isinstance(work, ScoreWork):
            work.take(own)
    indices = [i for i, work in enumerate(works) if isinstance(work, VerifyWork)]
    if indices:
        own = logits if len(indices) == len(works) else torch.cat([rows[i] for i in indices])
        advance_verification([work for work in works if isinstance(work, VerifyWork)], own)


def advance_verification(works: list[VerifyWork], logits: Tensor) -> None:
    """Judges works with logits `[sum of (K + 1), vocabulary]`, kind by kind."""
    adjusted = adjust(logits, [work.held.row_block(work.row_count, logits.device) for work in works])
    judged = fail_not_finite(works, samplable_rows(logits, adjusted))
    rows = adjusted.split([work.row_count for work in works])
    for members in by_kind(judged):
        part = adjusted if len(members) == len(works) else torch.cat([rows[works.index(work)] for work in members])
        commit(members, judge(members, part))
    add_logprobs(works, logits)


def by_kind(works: list[VerifyWork]) -> list[list[VerifyWork]]:
    """Works to judge together: by rule, and wide supports by themselves, because blocks are padded to the widest."""
    kinds: dict[tuple[bool, bool], list[VerifyWork]] = defaultdict(list)
    for work in works:
        kinds[work.options.rule is Rule.COUPLED, work.call.draft.token_ids.size(1) > WIDE_SUPPORT].append(work)
    return list(kinds.values())


def commit(works: list[VerifyWork], verdicts: Verdicts) -> None:
    """Keeps the accepted tokens and adds the target's own."""
    accepted, following = verdicts.accepted_counts.tolist(), verdicts.next_tokens.tolist()
    for work, count, token in zip(works, accepted, following, strict=True):
        work.accepted_count, work.next_token = count, token
        work.sequence.replace_from(work.first_position + count, [token])
        work.done = True


def fail_not_finite(works: list[VerifyWork], finite: Tensor) -> list[VerifyWork]:
    """Fails the works with rows that cannot be sampled, and only those; the others. finite `[sum of (K + 1)]`."""
    if bool(finite.all()):
        return works
    for work, rows in zip(works, finite.split([work.row_count for work in works]), strict=True):
        if not bool(rows.all()):
            work.error, work.done = NotFiniteError(), True
    return [work for work in works if not work.done]


def judge(works: list[VerifyWork], adjusted: Tensor) -> Verdicts:
    """One vectorised pass over the rows of all works, which are all coupled or none."""
    device = adjusted.device
    counts = [len(work.call.proposed) for work in works]
    lengths = torch.tensor(counts, device=device)
    most = max(counts)
    padded = [work.call.proposed + [0] * (most - len(work.call.proposed)) for work in works]
    tokens = torch.tensor(padded, dtype=torch.long, device=device).reshape(len(works), most)
    sampling = [work.options.sampling for work in works for _ in range(work.row_count)]
    target = probabilities(adjusted, SamplingRows.of(sampling, device))
    if works[0].options.rule is Rule.COUPLED:
        seeds = [options.seed for options in sampling]
        positions = [work.first_position + row for work in works for row in range(work.row_count)]
        return verify_coupled(target, tokens, lengths, seeds, positions)
    return verify(
        target,
        tokens,
        lengths,
        to_device(stack_blocks([work.call.draft for work in works]), device),
        [work.options.rule for work in works],
        acceptance_noise(works, most).to(device),
        next_noise(works).to(device),
        lenience_of(works, adjusted, tokens, lengths),
    )


def lenience_of(works: list[VerifyWork], adjusted: Tensor, tokens: Tensor, lengths: Tensor) -> Lenience | None:
    """How much more than is right these works accept; None, as ever but on request, if nothing."""
    factors = [work.options.lenience for work in works]
    if min(factors) == 1.0:
        return None
    ordinals = torch.arange(tokens.shape[1], device=tokens.device)
    rows = first_rows(lengths)[:, None] + torch.minimum(ordinals, lengths[:, None])
    return Lenience.of(factors, [w.options.sampling.is_greedy for w in works], closeness(adjusted, rows, tokens))


def add_logprobs(works: list[VerifyWork], logits: Tensor) -> None:
    """For the works that want them: what the bare logits `[sum of (K + 1), vocabulary]` say of the committed tokens."""
    first, rows, tokens, top_counts, owners = 0, [], [], [], []
    for work in works:
        if work.options.logprobs is not None and work.error is None:
            committed = [*work.call.proposed[: work.accepted_count], work.next_token]
            rows.extend(range(first, first + len(committed)))
            tokens += committed
            top_counts += [work.options.logprobs] * len(committed)
            owners += [work] * len(committed)
        first += work.row_count
    if rows:
        entries = token_logprobs(logits[rows], tokens, top_counts)
        for work, entry in zip(owners, entries, strict=True):
            work.logprobs.append(entry)


def to_device(rows: DraftRows, device: torch.device) -> DraftRows:
    return DraftRows(rows.token_ids.to(device), rows.probabilities.to(device))


def acceptance_noise(works: list[VerifyWork], most: int) -> Tensor:
    """Uniforms `[works, most]`, keyed by the step at which the block is verified and the offset in it."""
    seeds = [work.options.sampling.seed for work in works for _ in range(most)]
    steps = [work.call.step for work in works for _ in range(most)]
    offsets = list(range(most)) * len(works)
    return torch.as_tensor(uniforms(seeds, Domain.ACCEPT, steps, offsets)).reshape(len(works), most)


def next_noise(works: list[VerifyWork]) -> Tensor:
    """One uniform for each work's own token, `[works]`."""
    seeds = [work.options.sampling.seed for work in works]
    steps = [work.call.step for work in works]
    return torch.as_tensor(uniforms(seeds, Domain.RESIDUAL, steps, [0] * len(works)))
