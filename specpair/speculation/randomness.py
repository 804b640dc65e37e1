"""Counter-based randomness: every draw is a pure function of (seed, domain, step, offset).

Philox of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011), ten rounds. A draw is keyed by the step
at which its block is verified and not by its position: keyed by position the block rule is biased, because the accepted
count depends on draws that would be used again. Drafting and acceptance use different domains: with shared noise both
rules are biased.

All draws of a (seed, domain, step) are one stream of Philox4x64 words. numpy generates them here, for CPUs;
`device_randomness` makes the same words on a device.
"""

import threading
from enum import IntEnum
from typing import Any

import numpy as np

BITS = 53
"""Random bits of one draw: as many as a float64 in [0, 1) can hold."""
LAST_STEP = 2**64 - 1
"""The largest that keys a draw, and that a message can have. Nothing follows it."""


class Domain(IntEnum):
    """What a draw is for. Draws of different domains are independent."""

    DRAFT = 1
    """The draft's choice of a token."""
    ACCEPT = 2
    """The target's decision on a drafted token."""
    GUMBEL = 4
    """Upper bits of the noise over the vocabulary that draft and target share: under the coupled rule it chooses all
    tokens, else the target's own one, correction or bonus."""
    GUMBEL_LOWER = 5
    """Lower bits of that noise."""
    SUPPORT = 6
    """The choice of tokens by a drafter that cannot send all of them."""


class _Local(threading.local):
    """One generator per thread, because setting the state and drawing are two calls."""

    def __init__(self) -> None:
        self.philox: Any = np.random.Philox(0)


_local = _Local()


def random_words(seed: int, domain: Domain, step: int, first: int, count: int) -> np.ndarray:
    """Words first .. first + count - 1 of the stream of (seed, domain, step): uint64 [count].

    Words 4 i .. 4 i + 3 are Philox4x64-10 of the counter (i + 1, step, 0, 0) and the key (seed, domain), since numpy
    increments the counter before it draws. `seed`, `step` and `first` are below 2^64. It takes 2 us, and 4 ns per word.
    """
    lane = first & 3
    philox = _local.philox
    philox.state = {
        "bit_generator": "Philox",
        "state": {"counter": (first >> 2, step, 0, 0), "key": (seed, int(domain))},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # no words of another stream are left
        "has_uint32": 0,
        "uinteger": 0,
    }
    return philox.random_raw(lane + count)[lane:]


def random_bits(seed: int, domain: Domain, step: int, count: int, first: int = 0) -> np.ndarray:
    """Draws `first` and following of a stream: int64 [count] in [0, 2^53)."""
    return (random_words(seed, domain, step, first, count) >> (64 - BITS)).view(np.int64)


def draw_bits(seed: int, domain: Domain, step: int, offset: int) -> int:
    """Draw number `offset` of a stream: 53 bits."""
    return int(random_words(seed, domain, step, offset, 1)[0]) >> (64 - BITS)


def uniforms(words: np.ndarray) -> np.ndarray:
    """Random words, uint64, as numbers in [0, 1): float64 with 53 random bits."""
    return (words >> (64 - BITS)) * 2.0**-BITS
