"""Drafter: counts of what followed the last tokens earlier in prompt and output."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter
from specpair.options import Drafter
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.tables import Tables


def make(tables: Tables | None) -> Proposer:
    return PredictingDrafter(Drafter.NGRAM, lambda held, call: NgramPredictor(held.index()))
