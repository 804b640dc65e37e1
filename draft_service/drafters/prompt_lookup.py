"""Drafter: copies what followed an earlier occurrence of the longest matching suffix of prompt and output."""

from draft_service.drafters.interface import Proposer
from draft_service.drafters.predicting import PredictingDrafter
from specpair.options import Drafter
from specpair.speculation.prompt_lookup import LookupPredictor
from specpair.speculation.tables import Tables


def make(tables: Tables | None) -> Proposer:
    return PredictingDrafter(Drafter.PROMPT_LOOKUP, lambda held, call: LookupPredictor(held.index()))
