"""Proposals that are drawn whole, by a runner or a head that can, in whichever service they are drawn."""

import numpy as np

from specpair.caches.holding import Holding
from specpair.drafting import Drafting, bits_of, end_early, sample_dense, take
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.options import Rule
from specpair.sequences.sequence import Sequence


def needs_steps(work: Drafting) -> ChainMiss | None:
    """Why a proposal has to be drawn token by token, whatever the runner can."""
    reasons = {
        ChainMiss.STRUCTURE: work.held.grammar is not None,
        ChainMiss.ADJUSTMENTS: work.options.sampling.adjusts_logits,
        ChainMiss.DENSE: work.sampler is sample_dense,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def holding_of(sequence: Sequence) -> Holding:
    """What the cache has of a sequence that has been fed."""
    assert sequence.holding is not None
    return sequence.holding


def chain_of(
    work: Drafting, holding: Holding, vocab_size: int, *, is_awaited: bool = True, looks_beyond: bool = False
) -> ChainRow:
    """What is needed to draw what is left of the proposal, from a model with that many ids. To look beyond it is to
    draw one token more, which `take_all` leaves out."""
    options = work.options
    drawn, count = len(work.tokens), work.count + looks_beyond
    is_coupled = options.rule is Rule.COUPLED
    needs_bits = not is_coupled and not options.sampling.is_greedy
    return ChainRow(
        holding=holding,
        position=len(work.sequence.tokens),
        count=count - drawn,
        sampling=options.sampling,
        is_coupled=is_coupled,
        min_confidence=work.min_confidence,
        confidence=work.confidence,
        vocab_size=min(options.vocab_size or vocab_size, vocab_size),
        bits=bits_of(work, count)[drawn:] if needs_bits else np.zeros(0, dtype=np.int64),
        looks=work.looks,
        is_awaited=is_awaited,
        rank=0 if drawn else work.rank,
        race_step=None if drawn else work.race_step,
    )


def take_all(work: Drafting, drawn: DrawnChain) -> None:
    """Gives a work what was drawn for it, up to the token after which the draft is unsure. What comes after that may
    have been drawn, but is dropped without being looked at: where the proposal ends depends on tokens alone that are
    kept (docs/exactness.md, rule 8). Where drawing was stopped the work is not done."""
    for token, share in zip(drawn.tokens, drawn.shares, strict=True):
        take(work, token)
        if work.min_confidence and not work.done:
            work.confidence *= share
            work.done = work.confidence < work.min_confidence
        if work.done:
            break
    else:
        if drawn.is_over:
            end_early(work)
    work.counts += drawn.counts[: len(work.tokens) - len(work.counts)]
    work.outlooks += drawn.outlooks
