"""Routes sequences to instances: by prompt prefix, for cache hits, unless others are much less loaded."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

PREFIX_LENGTH = 64
"""Tokens of the prompt that decide the routing: about the beginning of a system prompt."""
SLACK = 2
SLACK_SHARE = 0.25
"""By how much an instance's load may exceed the least load while it is still preferred."""


class Candidate(NamedTuple):
    """An instance that could take a sequence."""

    name: str
    """Its address, which stays the same after a restart."""
    load: int
    """Number of sequences placed there."""


def route(candidates: Sequence[Candidate], token_ids: Sequence[int]) -> int:
    """The index of the chosen candidate; there must be at least one.

    Rendezvous hashing with bounded loads: prompts with the same prefix go to the same instance, whose cache holds it,
    and when an instance comes or goes the others keep their prefixes.
    """
    least = min(candidate.load for candidate in candidates)
    bound = least + max(SLACK, SLACK_SHARE * least)
    prefix = ",".join(map(str, token_ids[:PREFIX_LENGTH]))
    bearable = [index for index, candidate in enumerate(candidates) if candidate.load <= bound]
    return max(bearable, key=lambda index: _score(candidates[index].name, prefix))


def _score(name: str, prefix: str) -> bytes:
    return hashlib.blake2b(f"{name}/{prefix}".encode(), digest_size=8).digest()
