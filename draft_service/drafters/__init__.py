"""The drafters: one file each, and one line here."""

from collections.abc import Callable
from typing import NamedTuple

from draft_service.drafters import bigram, model, ngram, ngram_model, prompt_lookup, uniform, unigram
from draft_service.drafters.interface import Proposer, Resources
from specpair.options import Drafter


class Registered(NamedTuple):
    """How a drafter is made."""

    make: Callable[[Resources], Proposer | None]
    """Gives None where the process lacks what it needs."""
    needs: str = "nothing"


REGISTRY: dict[Drafter, Registered] = {
    Drafter.MODEL: Registered(model.make, "a draft model"),
    Drafter.NGRAM: Registered(ngram.make),
    Drafter.PROMPT_LOOKUP: Registered(prompt_lookup.make),
    Drafter.UNIGRAM: Registered(unigram.make, "a table of counts"),
    Drafter.BIGRAM: Registered(bigram.make, "a table of counts"),
    Drafter.UNIFORM: Registered(uniform.make),
    Drafter.NGRAM_MODEL: Registered(ngram_model.make, "a draft model"),
}


def make_drafters(resources: Resources) -> dict[Drafter, Proposer]:
    """All drafters that this process can serve."""
    made = {drafter: registered.make(resources) for drafter, registered in REGISTRY.items()}
    return {drafter: proposer for drafter, proposer in made.items() if proposer is not None}


def why_not(drafter: Drafter) -> str:
    """Why a drafter cannot be served."""
    return f"{drafter} needs {REGISTRY[drafter].needs}, and there is none"
