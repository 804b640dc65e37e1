"""How often each token comes in a corpus."""

from draft_service.drafters.guessing import GuessingDrafter
from draft_service.drafters.interface import Proposer
from specpair.options import Drafter
from specpair.speculation.tables import Tables, UnigramPredictor


def make(tables: Tables | None) -> Proposer | None:
    if tables is None:
        return None
    predictor = UnigramPredictor(tables)
    return GuessingDrafter(Drafter.UNIGRAM, lambda held, call: predictor)
