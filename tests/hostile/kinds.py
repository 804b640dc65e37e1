"""All kinds of cases, and how often each is made."""

from collections.abc import Awaitable, Callable
from random import Random

from tests.hostile.attack import Attack
from tests.hostile.bodies import send_broken_json, send_large_body, send_types
from tests.hostile.distributions import send_bad_distributions, send_trees
from tests.hostile.fuzz import (
    send_extremes,
    send_much,
    send_mutations,
    send_noise,
    send_to_no_method,
    send_too_much,
    send_wrong_counts,
)
from tests.hostile.heads import send_and_hang_up, send_heads, send_slowly
from tests.hostile.http2 import send_frames
from tests.hostile.identities import send_broken_text, send_metadata, send_names
from tests.hostile.leaving import read_slowly, send_and_leave, send_half
from tests.hostile.positions import send_closed, send_positions, send_reordered

Kind = Callable[[Attack], Awaitable[None]]

WEIGHTS: dict[Kind, float] = {
    send_noise: 10,
    send_mutations: 25,
    send_extremes: 30,
    send_wrong_counts: 3,
    send_to_no_method: 3,
    send_too_much: 0.03,
    send_much: 1,
    send_bad_distributions: 14,
    send_trees: 3,
    send_positions: 14,
    send_reordered: 5,
    send_closed: 4,
    send_names: 5,
    send_broken_text: 3,
    send_metadata: 4,
    send_and_leave: 7,
    send_half: 5,
    read_slowly: 3,
    send_frames: 6,
    send_types: 16,
    send_broken_json: 10,
    send_large_body: 0.3,
    send_heads: 10,
    send_slowly: 3,
    send_and_hang_up: 4,
}


def name_of(kind: Kind) -> str:
    """As it is told: `send_bad_distributions` is bad_distributions."""
    return kind.__name__.removeprefix("send_")


KINDS: dict[str, Kind] = {name_of(kind): kind for kind in WEIGHTS}


def case_of(seed: int, number: int, only_kind: str | None = None) -> tuple[str, Random]:
    """What case this is, and all its chances; the same in every run with the seed."""
    random = Random(f"{seed} {number}")
    [kind] = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return only_kind or name_of(kind), random
