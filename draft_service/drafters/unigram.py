"""Drafter: how often each token occurs in a corpus."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter
from specpair.options import Drafter
from specpair.speculation.tables import Tables, UnigramPredictor


def make(tables: Tables | None) -> Proposer | None:
    if tables is None:
        return None
    predictor = UnigramPredictor(tables)
    return PredictingDrafter(Drafter.UNIGRAM, lambda held, call: predictor)
