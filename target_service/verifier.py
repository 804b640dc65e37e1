"""Verification of proposals: many sequences, one forward pass, one vectorised judgement.

The rules are `specpair.speculation.verification`'s; here they meet the engine. Only verdicts leave the device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specpair.engine.host import ModelHost
from specpair.engine.sequence import Work
from specpair.engine.sequence_store import HeldSequence
from specpair.errors import NotFiniteError
from specpair.speculation.drafting import DraftRows, stack_blocks
from specpair.speculation.randomness import Domain, uniforms
from specpair.speculation.sampling import SamplingRows, finite_rows, probabilities
from specpair.speculation.verification import Verdicts, verify

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


class Verifier(ModelHost[Verdict]):
    """The target model with its sequences."""

    async def verify(self, call: VerifyCall, body: object) -> Verdict:
        """The verdict on one call, given once for each step. Commits the accepted tokens and the next one."""

        async def compute(held: HeldSequence[Verdict]) -> Verdict:
            return await self._judge(held, call)

        return await self.sequences.step(call.sequence_id, call.step, body, compute)

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
            queue_time=work.queue_time,
            compute_time=work.compute_time,
        )

    @staticmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)


def advance(works: list[Work], logits: Tensor) -> None:
    """Judges every work whose rows are there: logits `[sum of (K + 1), vocabulary]`."""
    judged = [work for work in works if isinstance(work, VerifyWork)]
    judged, logits = drop_not_finite(judged, logits)
    rows = logits.split([work.row_count for work in judged])
    for group in by_width(judged):
        members = [judged[i] for i in group]
        part = logits if len(group) == len(judged) else torch.cat([rows[i] for i in group])
        commit(members, judge(members, part))


def by_width(works: list[VerifyWork]) -> list[list[int]]:
    """Indices of works to judge together: blocks are padded to the widest support, so wide ones go by themselves."""
    is_wide = [work.call.draft.token_ids.size(1) > WIDE_SUPPORT for work in works]
    groups = [[i for i, wide in enumerate(is_wide) if wide is chosen] for chosen in (False, True)]
    return [group for group in groups if group]


def commit(works: list[VerifyWork], verdicts: Verdicts) -> None:
    """Keeps the accepted tokens and adds the target's own."""
    accepted, following = verdicts.accepted_counts.tolist(), verdicts.next_tokens.tolist()
    for work, count, token in zip(works, accepted, following, strict=True):
        work.accepted_count, work.next_token = count, token
        committed = len(work.sequence.tokens) - len(work.call.proposed)
        work.sequence.replace_from(committed + count, [token])
        work.done = True


def drop_not_finite(works: list[VerifyWork], logits: Tensor) -> tuple[list[VerifyWork], Tensor]:
    """Fails the works with NaN or infinite logits, and only those."""
    finite = finite_rows(logits)
    if bool(finite.all()):
        return works, logits
    kept_works, kept_rows = [], []
    parts = zip(
        works, logits.split([w.row_count for w in works]), finite.split([w.row_count for w in works]), strict=True
    )
    for work, rows, are_finite in parts:
        if bool(are_finite.all()):
            kept_works.append(work)
            kept_rows.append(rows)
        else:
            work.error, work.done = NotFiniteError(), True
    return kept_works, torch.cat(kept_rows) if kept_rows else logits[:0]


def judge(works: list[VerifyWork], logits: Tensor) -> Verdicts:
    """One vectorised pass over the rows of all works."""
    device = logits.device
    counts = [len(work.call.proposed) for work in works]
    most = max(counts)
    options = [work.held.options for work in works]
    rows = [o.sampling for o, count in zip(options, counts, strict=True) for _ in range(count + 1)]
    target = probabilities(logits, SamplingRows.of(rows, device))
    tokens = [work.call.proposed + [0] * (most - len(work.call.proposed)) for work in works]
    return verify(
        target,
        torch.tensor(tokens, dtype=torch.long, device=device).reshape(len(works), most),
        torch.tensor(counts, device=device),
        to_device(stack_blocks([work.call.draft for work in works]), device),
        [o.rule for o in options],
        acceptance_noise(works, most).to(device),
        next_noise(works).to(device),
    )


def to_device(rows: DraftRows, device: torch.device) -> DraftRows:
    return DraftRows(rows.token_ids.to(device), rows.probabilities.to(device))


def acceptance_noise(works: list[VerifyWork], most: int) -> Tensor:
    """Uniforms `[works, most]`, keyed by the step at which the block is verified and the offset in it."""
    seeds = [work.held.options.sampling.seed for work in works for _ in range(most)]
    steps = [work.call.step for work in works for _ in range(most)]
    offsets = list(range(most)) * len(works)
    return torch.as_tensor(uniforms(seeds, Domain.ACCEPT, steps, offsets)).reshape(len(works), most)


def next_noise(works: list[VerifyWork]) -> Tensor:
    """One uniform for each work's own token, `[works]`."""
    seeds = [work.held.options.sampling.seed for work in works]
    steps = [work.call.step for work in works]
    return torch.as_tensor(uniforms(seeds, Domain.RESIDUAL, steps, [0] * len(works)))
