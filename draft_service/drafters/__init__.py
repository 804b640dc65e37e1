"""The drafters: one file each, and one line here. Those with a model are made where it is, in `model_host`."""

from collections.abc import Callable

from draft_service.drafters import bigram, ngram, prompt_lookup, uniform, unigram
from draft_service.drafters.interface import Proposer
from specpair.options import Drafter
from specpair.speculation.tables import Tables

WITHOUT_MODEL: dict[Drafter, Callable[[Tables | None], Proposer | None]] = {
    Drafter.NGRAM: ngram.make,
    Drafter.PROMPT_LOOKUP: prompt_lookup.make,
    Drafter.UNIGRAM: unigram.make,
    Drafter.BIGRAM: bigram.make,
    Drafter.UNIFORM: uniform.make,
}
"""Each gives None where there is no table of counts, which it needs."""


def make_drafters(with_model: dict[Drafter, Proposer], tables: Tables | None) -> dict[Drafter, Proposer]:
    """All drafters that this process can serve, in the order of their names' definition."""
    made = with_model | {drafter: make(tables) for drafter, make in WITHOUT_MODEL.items()}
    return {drafter: proposer for drafter in Drafter if (proposer := made.get(drafter)) is not None}


def why_not(drafter: Drafter) -> str:
    """Why a drafter cannot be served."""
    needed = "a table of counts" if drafter in WITHOUT_MODEL else "a draft model"
    return f"{drafter} needs {needed}, and there is none"
