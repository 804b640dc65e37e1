"""Which instance a sequence goes to: the one that may know its beginning, unless others have much less to do."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

PREFIX_LENGTH = 64
"""Tokens that decide where a prompt belongs: about a system prompt's beginning."""
SLACK = 2
SLACK_SHARE = 0.25
"""How much more than the least loaded one an instance may have to do and still be preferred."""


class Candidate(NamedTuple):
    """An instance that could take a sequence."""

    name: str
    """Its address: the same for as long as it lives, and after a restart."""
    load: int
    """Sequences that it has."""


def route(candidates: Sequence[Candidate], token_ids: Sequence[int]) -> int:
    """The index of the candidate to take; there must be one.

    Rendezvous hashing with bounded loads: prompts that begin alike go to the same instance, whose cache holds that
    beginning, and when an instance comes or goes the others keep what they have.
    """
    least = min(candidate.load for candidate in candidates)
    bound = least + max(SLACK, SLACK_SHARE * least)
    prefix = ",".join(map(str, token_ids[:PREFIX_LENGTH]))
    bearable = [index for index, candidate in enumerate(candidates) if candidate.load <= bound]
    return max(bearable, key=lambda index: _score(candidates[index].name, prefix))


def _score(name: str, prefix: str) -> bytes:
    return hashlib.blake2b(f"{name}/{prefix}".encode(), digest_size=8).digest()
