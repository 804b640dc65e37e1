"""Verification of proposals: many sequences, one forward pass, one vectorised judgement.

The rules are `specpair.speculation`'s; here they meet the engine. Only verdicts leave the device.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specpair.engine.host import ModelHost
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.errors import NotFiniteError
from specpair.models.model_facts import ModelFacts
from specpair.models.model_runner import ModelRunner
from specpair.options import Rule, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.server.identity import client_name
from specpair.speculation.adjustments import adjust
from specpair.speculation.arrays import Array, native, placed
from specpair.speculation.coupling import verify_choices, verify_coupled
from specpair.speculation.drafting import DraftRows, draw, stack_blocks
from specpair.speculation.lenience import Lenience, closeness
from specpair.speculation.logprobs import TokenLogprobs, token_logprobs
from specpair.speculation.randomness import Domain, random_words, uniforms
from specpair.speculation.sampling import SamplingRows, came_of_finite, finite_rows, likeliest, probabilities
from specpair.speculation.verification import Block, Verdicts, packed_rows, verify
from target_service.scorer import Scorer
from target_service.scoring import ScoreWork

ANSWER_BYTES = 1024
ENTRY_BYTES = 100
"""Of a token and its logprob in memory."""
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
    include_probabilities: bool = False


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
    batch_token_count: int
    """Tokens in its largest forward pass, those of other sequences included."""
    target_probabilities: list[float]
    """Of the proposed tokens, if asked for."""
    draft_probabilities: list[float]
    """The same; empty, too, where no distributions were sent."""
    rollback_time: float
    """Seconds that the cache took to drop what was rolled back."""

    @property
    def byte_count(self) -> int:
        """About as much memory as it takes."""
        return ANSWER_BYTES + sum(ENTRY_BYTES * (1 + len(entry.top_token_ids)) for entry in self.logprobs)


@dataclass(eq=False, kw_only=True)
class VerifyWork(Work):
    """The engine's view of a call: its rows are the last committed token and the proposed tokens."""

    held: HeldSequence[Verdict]
    call: VerifyCall
    accepted_count: int = 0
    next_token: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    target_probabilities: list[float] = field(default_factory=list)

    @property
    def options(self) -> SequenceOptions:
        return self.held.options

    @property
    def first_position(self) -> int:
        """Position of the token that the first row decides."""
        return len(self.sequence.tokens) - len(self.call.proposed)


class Kind(NamedTuple):
    """What works have in common that are judged together."""

    judge: Callable[[list[VerifyWork], Tensor], tuple[Verdicts, list[bool]]]
    """Judges works with their rows `[sum of (K + 1), vocabulary]`, and says which of those are finite."""
    rule: Rule | None = None
    """Where it matters."""
    is_wide: bool = False
    """Blocks are padded to the widest support."""


class Verifier(ModelHost[Verdict]):
    """The target model with its sequences."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: ModelRunner):
        super().__init__(config, facts, runner)
        self._scorer = Scorer(self.engine, self.sequences, self.token_budget)

    async def verify(self, call: VerifyCall, body: object) -> Verdict:
        """The verdict on one call, given once for each step. Commits the accepted tokens and the next one."""

        async def compute(held: HeldSequence[Verdict]) -> Verdict:
            return await self._judge(held, call)

        return await self.sequences.step(call.sequence_id, call.step, body, compute)

    async def score(self, token_ids: list[int], top_count: int) -> list[TokenLogprobs]:
        """Logprobs of all tokens but the first. What was computed is kept for sequences that begin alike."""
        return await self._scorer.score(token_ids, top_count)

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
            batch_token_count=work.largest_batch.token_count if work.largest_batch else 0,
            target_probabilities=work.target_probabilities,
            draft_probabilities=sent_probabilities(work) if call.include_probabilities else [],
            rollback_time=work.rollback_time,
        )

    @staticmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        advance(works, logits)

    @staticmethod
    def caller() -> str:
        return client_name()


def advance(works: list[Work], logits: Tensor) -> None:
    """Looks at every work whose rows are there: logits `[sum of row counts, vocabulary]`."""
    verifying = [work for work in works if isinstance(work, VerifyWork)]
    if len(verifying) == len(works):
        advance_verification(verifying, logits)
        return
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    for work in works:
        if isinstance(work, ScoreWork):
            work.take(rows[work])
    if verifying:
        advance_verification(verifying, torch.cat([rows[work] for work in verifying]))


def advance_verification(works: list[VerifyWork], logits: Tensor) -> None:
    """Judges works with logits `[sum of (K + 1), vocabulary]`, kind by kind."""
    adjusted = adjust_rows(works, logits)
    add_probabilities(works, adjusted)
    kinds = by_kind([work for work in works if not work.done])
    for kind, members in kinds.items():
        own = adjusted if len(members) == len(works) else rows_of(members, works, adjusted)
        settle(members, *kind.judge(members, own))
    add_logprobs(works, logits)


def rows_of(members: list[VerifyWork], works: list[VerifyWork], rows: Tensor) -> Tensor:
    """Those of some of the works, of rows `[sum of (K + 1), vocabulary]` of all."""
    parts = dict(zip(works, rows.split([work.row_count for work in works]), strict=True))
    return torch.cat([parts[work] for work in members])


def adjust_rows(works: list[VerifyWork], logits: Tensor) -> Tensor:
    """The logits as the options leave them. Fails the works of which the model itself gave a row that is not finite,
    which their options could hide; what is not finite afterwards is found where it is judged."""
    if not any(work.options.sampling.adjusts_logits for work in works):
        return logits
    fail_not_finite(works, finite_rows(logits).tolist())
    return adjust(logits, [work.held.row_block(work.row_count, logits.device) for work in works])


def by_kind(works: list[VerifyWork]) -> dict[Kind, list[VerifyWork]]:
    """Works to judge together."""
    kinds: dict[Kind, list[VerifyWork]] = defaultdict(list)
    for work in works:
        kinds[kind_of(work)].append(work)
    return kinds


def kind_of(work: VerifyWork) -> Kind:
    options = work.options
    if options.sampling.is_greedy and options.lenience == 1.0:
        return Kind(judge_greedy)
    if options.rule is Rule.COUPLED:
        return Kind(judge_coupled)
    return Kind(judge_drawn, options.rule, work.call.draft.token_ids.shape[1] > WIDE_SUPPORT)


def settle(works: list[VerifyWork], verdicts: Verdicts, finite: list[bool]) -> None:
    """Keeps what comes of works of which the rows `[sum of (K + 1)]` are finite, and fails the others."""
    fail_not_finite(works, finite)
    accepted, following = verdicts.accepted_counts.tolist(), verdicts.next_tokens.tolist()
    for work, count, token in zip(works, accepted, following, strict=True):
        if not work.done:
            commit(work, count, token)


def commit(work: VerifyWork, accepted_count: int, next_token: int) -> None:
    """Keeps the accepted tokens and adds the target's own."""
    work.accepted_count, work.next_token = accepted_count, next_token
    work.sequence.replace_from(work.first_position + accepted_count, [next_token])
    work.done = True


def fail_not_finite(works: list[VerifyWork], finite: list[bool]) -> None:
    """Fails the works with rows that cannot be sampled, and only those: finite `[sum of (K + 1)]`."""
    if all(finite):
        return
    first = 0
    for work in works:
        if not all(finite[first : first + work.row_count]):
            work.error, work.done = NotFiniteError(), True
        first += work.row_count


def judge_greedy(works: list[VerifyWork], adjusted: Tensor) -> tuple[Verdicts, list[bool]]:
    """Under every rule a greedy target accepts what it would have written: no noise, no residual, no draw."""
    choices, finite = likeliest(adjusted)
    return verify_choices(choices, *proposals(works)), finite


def judge_coupled(works: list[VerifyWork], adjusted: Tensor) -> tuple[Verdicts, list[bool]]:
    target = distributions(works, adjusted)
    seeds = [work.options.sampling.seed for work in works for _ in range(work.row_count)]
    positions = [work.first_position + row for work in works for row in range(work.row_count)]
    return verify_coupled(target, *proposals(works), seeds, positions), came_of_finite(native(target))


def judge_drawn(works: list[VerifyWork], adjusted: Tensor) -> tuple[Verdicts, list[bool]]:
    """By the token rule or the block rule."""
    target = native(distributions(works, adjusted))
    # Of a greedy sequence, which is here if it is lenient, the distribution does not tell what it came of.
    is_any_greedy = any(work.options.sampling.is_greedy for work in works)
    finite = finite_rows(adjusted).tolist() if is_any_greedy else came_of_finite(target)
    noise = placed(next_noise(works), adjusted.device)
    if len(finite) == len(works):  # nothing was proposed
        return Verdicts(np.zeros(len(works), dtype=np.int64), draw(target, noise)), finite
    block = block_of(works, adjusted)
    return verify(target, block, placed(acceptance_noise(works, block.tokens.shape[1]), adjusted.device), noise), finite


def distributions(works: list[VerifyWork], adjusted: Tensor) -> Tensor:
    """What the target's own tokens are drawn from, `[sum of (K + 1), vocabulary]`."""
    counts = [work.row_count for work in works]
    return probabilities(adjusted, SamplingRows([work.options.sampling for work in works], counts, adjusted.device))


def block_of(works: list[VerifyWork], adjusted: Tensor) -> Block:
    device = adjusted.device
    tokens, lengths = proposals(works)
    rows = placed(packed_rows([len(work.call.proposed) for work in works], tokens.shape[1]), device)
    tokens, lengths = placed(tokens, device), placed(lengths, device)
    draft = DraftRows(*(placed(part, device) for part in stack_blocks([work.call.draft for work in works])))
    return Block(tokens, lengths, draft, rows, works[0].options.rule, lenience_of(works, adjusted, rows, tokens))


def proposals(works: list[VerifyWork]) -> tuple[np.ndarray, np.ndarray]:
    """Proposed tokens `[works, K]`, padded with 0, and how many there are `[works]`: int64."""
    counts = [len(work.call.proposed) for work in works]
    tokens = np.zeros((len(works), max(counts)), dtype=np.int64)
    for row, work in enumerate(works):
        tokens[row, : counts[row]] = work.call.proposed
    return tokens, np.array(counts)


def lenience_of(works: list[VerifyWork], adjusted: Tensor, rows: Array, tokens: Array) -> Lenience | None:
    """How much more than is right these works accept; None, as ever but on request, if nothing."""
    factors = [work.options.lenience for work in works]
    if min(factors) == 1.0:
        return None
    near = closeness(native(adjusted), rows, tokens)
    is_greedy = [work.options.sampling.is_greedy for work in works]
    return Lenience(placed(np.array(factors), adjusted.device), placed(np.array(is_greedy), adjusted.device), near)


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


def add_probabilities(works: list[VerifyWork], adjusted: Tensor) -> None:
    """For the works that want them: the target's probability of each proposed token, from `[sum of (K + 1), V]`."""
    first = 0
    for work in works:
        count = len(work.call.proposed)
        if work.call.include_probabilities and count and not work.done:
            sampling = replace(work.options.sampling, temperature=work.options.sampling.temperature or 1.0)
            rows = probabilities(adjusted[first : first + count], SamplingRows([sampling], [count], adjusted.device))
            work.target_probabilities = rows[range(count), work.call.proposed].tolist()
        first += work.row_count


def sent_probabilities(work: VerifyWork) -> list[float]:
    """The draft's probability of each proposed token; none where it is no news (greedy) or no distribution was sent."""
    draft = work.call.draft
    if work.options.sampling.is_greedy or not draft.token_ids.shape[1]:
        return []
    return [0.0 if math.isinf(value) else value for value in draft.drawn.tolist()]


def acceptance_noise(works: list[VerifyWork], most: int) -> np.ndarray:
    """Uniforms `[works, most]`, keyed by the step at which the block is verified and the offset in it."""
    words = np.empty((len(works), most), dtype=np.uint64)
    for row, work in enumerate(works):
        words[row] = random_words(work.options.sampling.seed, Domain.ACCEPT, work.call.step, 0, most)
    return uniforms(words)


def next_noise(works: list[VerifyWork]) -> np.ndarray:
    """One uniform for each work's own token, `[works]`."""
    words = np.empty(len(works), dtype=np.uint64)
    for row, work in enumerate(works):
        words[row : row + 1] = random_words(work.options.sampling.seed, Domain.RESIDUAL, work.call.step, 0, 1)
    return uniforms(words)
