"""Draws the next token of many proposals at once from a model's logits, whichever service runs the model.

Each token is drawn from exactly the distribution that is sent: encoded first, then sampled from what the encoding says
(docs/exactness.md, rule 1). The noise is keyed by the step that will verify the proposal.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from specpair.errors import NotFiniteError
from specpair.options import Encoding, Rule, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.adjustments import adjust
from specpair.speculation.arrays import native, placed
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.draft_rows import draw
from specpair.speculation.gumbel import choose, choose_and_look
from specpair.speculation.masking import masked_if_possible
from specpair.speculation.outlook import WIDTH, Outlook, of_logits
from specpair.speculation.own_token import foresee_rows
from specpair.speculation.randomness import BITS, Domain, random_bits
from specpair.speculation.sampling import SamplingRows, came_of_finite, finite_rows, likeliest, probabilities, softmax
from specpair.speculation.sparse_rows import draw_rows
from specpair.speculation.trees.drawing import first_offset
from specpair.wire.distributions import decoded_dense


class Drafting(Protocol):
    """A proposal that is being drawn."""

    held: HeldSequence[Any]
    """The sequence whose options apply, with the tokens of `sequence`."""
    sequence: Sequence
    """The committed tokens, then those drawn so far."""
    options: SequenceOptions
    sampler: "Sampler"
    """`sampler_of` the options."""
    step: int
    """The step that will verify it."""
    count: int
    """Tokens to draw."""
    min_confidence: float
    """Drafting stops once `confidence` is below this; 0 never stops."""
    confidence: float
    """Product of the drawn tokens' probabilities at temperature 1; stays 1 if min_confidence is 0."""
    tokens: list[int]
    counts: list[CountRow]
    dense: list[Tensor]
    bits: list[int]
    """Random bits for its tokens, drawn together."""
    looks: bool
    """Whether to note the outlooks of rows that are not sent."""
    outlooks: list[Outlook]
    rank: int
    """Place in the outlook of the first row of the token that is taken from it; 0: the drawn one."""
    race_step: int | None
    """The first token is the one of the `rank` in the race that draws the target's own token of this step; None: it is
    drawn as the others are."""
    done: bool
    error: Exception | None


Sampler: TypeAlias = Callable[[list[Any], Tensor], None]
"""Draws the next tokens of proposals from their adjusted logits."""


def draw_next(works: list[Any], logits: Tensor) -> None:
    """Draws the next token of every proposal, each a `Drafting`, from logits `[proposals, vocabulary]`."""
    mask_vocabulary(works, logits)
    adjusted = adjust_rows(works, logits)
    if foreseen := [i for i, work in enumerate(works) if begins_with_own_token(work)]:
        take_foreseen([works[i] for i in foreseen], adjusted[foreseen])
        drawn = [i for i in range(len(works)) if i not in set(foreseen)]
        works, adjusted = [works[i] for i in drawn], adjusted[drawn]
    chosen: dict[Sampler, list[int]] = {}
    for i, work in enumerate(works):
        if not work.done:
            chosen.setdefault(work.sampler, []).append(i)
    for sample, places in chosen.items():
        rows = adjusted if len(places) == len(works) else adjusted[places]
        sample([works[i] for i in places], rows)
    end_unsure(works, adjusted)


def adjust_rows(works: list[Any], logits: Tensor) -> Tensor:
    """Applies the options to the logits. Ends works with a row that is not finite before the options, which could hide
    it; the samplers find rows that are not finite afterwards."""
    is_structured = any(work.held.grammar is not None for work in works)
    if not is_structured and not any(work.options.sampling.adjusts_logits for work in works):
        return logits
    for work, is_finite in zip(works, finite_rows(logits).tolist(), strict=True):
        if not is_finite:
            end_early(work)
    if is_structured:
        logits = masked_if_possible(logits, [structure_mask(work) for work in works])
    return adjust(logits, [work.held.row_block(1, logits.device) for work in works])


def structure_mask(work: Drafting) -> bytes | None:
    """Which tokens may come next in a structured output; None for any. The row that is sent is drawn from after it, so
    it only raises acceptance."""
    held = work.held
    return None if held.grammar is None else held.grammar.next_bits(work.sequence.tokens[held.prompt_length :])


def sampler_of(options: SequenceOptions) -> Sampler:
    """How a sequence's tokens are drawn from its adjusted logits. Under the coupled rule no distributions are sent."""
    is_coupled = options.rule is Rule.COUPLED
    if options.encoding is Encoding.DENSE and not is_coupled:
        return sample_dense
    if options.sampling.is_greedy:
        return sample_greedy
    return sample_coupled if is_coupled else sample_sparse


def end_early(work: Drafting) -> None:
    """The next row cannot be sampled from, or has no token of the work's rank. What was drawn is sent all the same: to
    drop a token for what came after it would bias the output (docs/exactness.md, rule 8)."""
    work.done = True
    del work.outlooks[len(work.tokens) :]  # of that row
    if not work.tokens and not work.rank and work.race_step is None:
        work.error = NotFiniteError()


def end_unsure(works: list[Any], adjusted: Tensor) -> None:
    """Ends works whose confidence is below their minimum; their tokens are kept (rule 8). Uses the adjusted logits
    `[works, vocabulary]` at temperature 1, so that confidence is meaningful for greedy sequences too."""
    asked = [row for row, work in enumerate(works) if work.min_confidence and not work.done]
    if not asked:
        return
    tokens = torch.tensor([[works[row].tokens[-1]] for row in asked], device=adjusted.device)
    shares = softmax(adjusted[asked]).gather(-1, tokens)[:, 0].tolist()
    for row, share in zip(asked, shares, strict=True):
        works[row].confidence *= share
        works[row].done = works[row].confidence < works[row].min_confidence


def mask_vocabulary(works: list[Any], logits: Tensor) -> None:
    """Masks the ids that the target does not have, in place."""
    for row, work in enumerate(works):
        if work.options.vocab_size is not None and work.options.vocab_size < logits.size(1):
            logits[row, work.options.vocab_size :] = float("-inf")


def sample_greedy(works: list[Any], adjusted: Tensor) -> None:
    """Takes the likeliest token. It is certain, so it needs no draw under any rule."""
    tokens, finite = likeliest(adjusted)
    note_outlooks(works, lambda rows: of_logits(adjusted[rows]))
    for work, token, is_finite in zip(works, tokens, finite, strict=True):
        if not is_finite:
            end_early(work)
            continue
        if (own := ranked(work, token)) is None:
            continue
        if work.options.rule is not Rule.COUPLED:
            work.counts.append(CountRow((own,), (TOTAL,)))
        take(work, own)


def sample_sparse(works: list[Any], adjusted: Tensor) -> None:
    """Encodes rows as integer counts, then draws from the counts."""
    drawn = draw_rows(distributions(works, adjusted), [next_bits(work) for work in works])
    for work, (row, token) in zip(works, drawn, strict=True):
        if not len(row.token_ids):
            end_early(work)
            continue
        work.counts.append(row)
        take(work, token)


def sample_dense(works: list[Any], adjusted: Tensor) -> None:
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
        if (taken := ranked(work, token)) is None:
            continue
        own = row[: work.options.vocab_size].float().cpu()
        work.dense.append(own.clone())  # a view would keep the whole batch alive
        take(work, taken)


def sample_coupled(works: list[Any], adjusted: Tensor) -> None:
    """Chooses with the same noise as the target will."""
    rows = distributions(works, adjusted)
    seeds = [work.options.sampling.seed for work in works]
    positions = [len(work.sequence.tokens) for work in works]
    if any(work.looks for work in works):
        choices, outlooks = choose_and_look(rows, seeds, positions, WIDTH)
        note_outlooks(works, lambda some: [outlooks[i] for i in some])
    else:
        choices = choose(rows, seeds, positions)
    finite = came_of_finite(native(rows)).tolist()
    for work, token, is_finite in zip(works, choices.tolist(), finite, strict=True):
        if not is_finite:
            end_early(work)
        elif (own := ranked(work, token)) is not None:
            take(work, own)


def begins_with_own_token(work: Drafting) -> bool:
    """Whether the next token of a work is not drawn, but one that the target may add by itself."""
    return work.race_step is not None and not work.tokens and not work.done


def take_foreseen(works: list[Any], adjusted: Tensor) -> None:
    """Takes the token of each work's rank in the race of its step, by the adjusted logits `[works, vocabulary]`."""
    rows = distributions(works, adjusted)
    seeds, steps = [work.options.sampling.seed for work in works], [work.race_step for work in works]
    outlooks = foresee_rows(rows, seeds, steps)
    for work, outlook, is_finite in zip(works, outlooks, came_of_finite(native(rows)).tolist(), strict=True):
        if not is_finite or work.rank >= len(outlook.token_ids):
            end_early(work)
            continue
        work.outlooks.append(outlook)
        work.counts.append(CountRow((), ()))
        take(work, outlook.token_ids[work.rank])


def ranked(work: Drafting, token: int) -> int | None:
    """The token to take from a row: the drawn one, or, if it is the first, the one that has the work's rank in its
    outlook. None, and the work ends, if there is none."""
    if not work.rank or work.tokens:
        return token
    tokens, shares = work.outlooks[0] if work.outlooks else ((), ())
    if work.rank < len(tokens) and shares[work.rank] > 0.0:  # else the options exclude it
        return tokens[work.rank]
    end_early(work)
    return None


def note_outlooks(works: list[Any], outlooks: Callable[[list[int]], list[Outlook]]) -> None:
    """Notes in the works that look for them the outlooks of their rows."""
    looking = [row for row, work in enumerate(works) if work.looks]
    if looking:
        for row, outlook in zip(looking, outlooks(looking), strict=True):
            works[row].outlooks.append(outlook)


def distributions(works: list[Any], adjusted: Tensor) -> Tensor:
    """The distributions from which tokens are drawn, `[works, vocabulary]`."""
    rows = SamplingRows([work.options.sampling for work in works], [1] * len(works), adjusted.device)
    return probabilities(adjusted, rows)


def next_bits(work: Drafting) -> int:
    """The next random bits of a work, keyed by the step that verifies the block and the offset in the block."""
    if not work.bits:
        work.bits = bits_of(work, work.count).tolist()
    return work.bits[len(work.tokens)]


def bits_of(work: Drafting, count: int) -> np.ndarray:
    """Random bits for the first tokens of a work: int64 `[count]`. One that begins with the target's own token has none
    for that, and for the others what a proposal after it has."""
    first, has_none = first_offset(work.options.draft_index), work.race_step is not None
    bits = random_bits(work.options.sampling.seed, Domain.DRAFT, work.step, count - has_none, first)
    return np.concatenate((np.zeros(1, dtype=np.int64), bits)) if has_none else bits


def take(work: Drafting, token: int) -> None:
    """Adds a drawn token; the engine feeds it next unless it is the last."""
    work.tokens.append(token)
    work.done = len(work.tokens) == work.count
    work.sequence.tokens.append(token)
