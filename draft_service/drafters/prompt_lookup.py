"""Copies what followed the longest suffix that prompt or output held before."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter
from specpair.options import Drafter
from specpair.speculation.prompt_lookup import LookupPredictor
from specpair.speculation.tables import Tables


def make(tables: Tables | None) -> Proposer:
    return PredictingDrafter(Drafter.PROMPT_LOOKUP, lambda held, call: LookupPredictor(held.index()))
