"""The common base of the drafters without a model."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from draft_service.drafters.interface import Proposer
from draft_service.proposal import Drafted, ProposeCall
from specpair.options import Drafter, Encoding
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.predicted_proposal import ProposalTask, draw_proposal
from specpair.speculation.prediction import Predictor

Predict = Callable[[HeldSequence[Drafted], ProposeCall], Predictor]
"""Makes the predictor for the committed tokens of a sequence."""


class PredictingDrafter(Proposer):
    """Draws proposals from a predictor, on the event loop: handing the work to a thread would take longer."""

    def __init__(self, drafter: Drafter, predict: Predict):
        self._drafter = drafter
        self._predict = predict

    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        return propose_predicted(self._drafter, self._predict, held, call)


def propose_predicted(drafter: Drafter, predict: Predict, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
    """The proposal of one call. Changes no state."""
    started_at = time.perf_counter()
    vocab_size = vocab_size_of(held)
    task = ProposalTask(
        options=held.options.sampling,
        rule=held.options.rule,
        vocab_size=vocab_size,
        prompt_length=held.prompt_length,
        length=held.length,
        step=call.step,
        max_tokens=call.count,
        min_confidence=call.min_confidence,
        draft_index=held.options.draft_index,
    )
    drawn = draw_proposal(predict(held, call), task)
    is_dense = held.options.encoding is Encoding.DENSE
    return Drafted(
        drafter=drafter,
        tokens=drawn.tokens,
        counts=[] if is_dense else drawn.rows,
        dense=[dense_row(row, vocab_size) for row in drawn.rows] if is_dense else [],
        queue_time=0.0,
        compute_time=time.perf_counter() - started_at,
        batch_size=0,
    )


def vocab_size_of(held: HeldSequence[Drafted]) -> int:
    """Token ids at or above it are never proposed; the host sets it when it opens the sequence."""
    assert held.options.vocab_size is not None
    return held.options.vocab_size


def dense_row(row: CountRow, vocab_size: int) -> Tensor:
    """The same distribution as `[vocabulary]` float32; exact, since a count has at most 24 bits."""
    dense = torch.zeros(vocab_size)
    dense[torch.tensor(row.token_ids)] = torch.tensor(row.counts, dtype=torch.float32) / TOTAL
    return dense
