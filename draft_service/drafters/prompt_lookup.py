"""Copies what followed the longest suffix that prompt or output held before."""

from draft_service.drafters.guessing import GuessingDrafter
from draft_service.drafters.interface import Proposer
from specpair.options import Drafter
from specpair.speculation.prompt_lookup import LookupPredictor
from specpair.speculation.tables import Tables


def make(tables: Tables | None) -> Proposer:
    return GuessingDrafter(Drafter.PROMPT_LOOKUP, lambda held, call: LookupPredictor(held.index()))
