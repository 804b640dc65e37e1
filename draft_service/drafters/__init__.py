"""The drafters: one file and one line here for each. Drafters with a model are created in `model_host`."""

from collections.abc import Callable

from draft_service.drafters import bigram, ngram, prompt_lookup, uniform, unigram
from draft_service.drafters.interface import Proposer
from specpair.options import ON_THE_TARGET, Drafter
from specpair.speculation.tables import Tables

WITHOUT_MODEL: dict[Drafter, Callable[[Tables | None], Proposer | None]] = {
    Drafter.NGRAM: ngram.make,
    Drafter.PROMPT_LOOKUP: prompt_lookup.make,
    Drafter.UNIGRAM: unigram.make,
    Drafter.BIGRAM: bigram.make,
    Drafter.UNIFORM: uniform.make,
}
"""Creates each drafter; None if it needs a table of counts and there is none."""


def make_drafters(with_model: dict[Drafter, Proposer], tables: Tables | None) -> dict[Drafter, Proposer]:
    """All drafters that this process can serve, in the order of `Drafter`."""
    made = with_model | {drafter: make(tables) for drafter, make in WITHOUT_MODEL.items()}
    return {drafter: proposer for drafter in Drafter if (proposer := made.get(drafter)) is not None}


def without_tables(drafters: dict[Drafter, Proposer]) -> dict[Drafter, Proposer]:
    """Those that need neither a model nor counts: they work in any vocabulary."""
    return {d: proposer for d, proposer in drafters.items() if d in WITHOUT_MODEL and WITHOUT_MODEL[d](None)}


def why_not(drafter: Drafter) -> str:
    """The reason why a drafter is not available."""
    if drafter in ON_THE_TARGET:
        return f"{drafter} is a head of the target, which --head loads there; requests choose it"
    needed = "a table of counts" if drafter in WITHOUT_MODEL else "a draft model"
    return f"{drafter} needs {needed}, and there is none"
