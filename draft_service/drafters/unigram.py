"""How often each token comes in a corpus."""

from draft_service.drafters.guessing import GuessingDrafter
from draft_service.drafters.interface import Proposer, Resources
from specpair.options import Drafter
from specpair.speculation.tables import UnigramPredictor


def make(resources: Resources) -> Proposer | None:
    if resources.tables is None:
        return None
    predictor = UnigramPredictor(resources.tables)
    return GuessingDrafter(Drafter.UNIGRAM, lambda held, call: predictor)
