"""Drafter: how often each token follows the last one in a corpus."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter
from specpair.options import Drafter
from specpair.speculation.tables import BigramPredictor, Tables, UnigramPredictor


def make(tables: Tables | None) -> Proposer | None:
    if tables is None:
        return None
    unigram = UnigramPredictor(tables)
    return PredictingDrafter(
        Drafter.BIGRAM, lambda held, call: BigramPredictor(held.cached.tokens[held.length - 1], tables, unigram)
    )
