"""Drafter: every token with the same probability."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter, vocab_size_of
from specpair.options import Drafter
from specpair.speculation.tables import Tables
from specpair.speculation.uniform import UniformPredictor


def make(tables: Tables | None) -> Proposer:
    return PredictingDrafter(
        Drafter.UNIFORM,
        lambda held, call: UniformPredictor(vocab_size_of(held), held.options.sampling.seed, call.step),
    )
