"""Counter-based randomness: every draw is a pure function of (seed, domain, step, offset).

Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011). A draw is keyed by the step at
which its block is verified and not by its position: keyed by position the block rule is biased, because the accepted
count tells something about draws that would be used again. Drafting and acceptance live in different domains: with
shared noise both rules are biased.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

Words = TypeVar("Words", np.ndarray, Tensor)

BITS = 53
"""Random bits of one draw: as many as a float64 in [0, 1) can hold."""

_ROUNDS = 10
_MASK = 0xFFFFFFFF
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]])
# What is added to the two words of the key before each round: [round, word, 1].
_KEY_STEPS = np.arange(_ROUNDS)[:, None, None] * np.array([[0x9E3779B9], [0xBB67AE85]])


class Domain(IntEnum):
    """What a draw is for. Draws of different domains are independent."""

    DRAFT = 1
    """The draft's choice of a token."""
    ACCEPT = 2
    """The target's decision on a drafted token."""
    RESIDUAL = 3
    """The target's own token: correction or bonus."""
    GUMBEL = 4
    """Noise over the vocabulary, shared by draft and target."""


def philox4x32(counter: Words, key: Words) -> tuple[Words, ...]:
    """Philox4x32-10 on 32-bit words held in int64: counters [4, N] and keys [2, N] to four random words [N].

    Both products of a round are one operation on two rows. A 64-bit product has the same bits whether it is signed
    or not; the masks drop the sign that the shift brings in.
    """
    multipliers, key_steps = _constants(counter)
    round_keys = (key + key_steps) & _MASK
    even, odd = counter[0::2], counter[1::2]  # words 0 and 2, words 1 and 3
    for round_key in round_keys:
        product = even * multipliers
        even = _exchanged((product >> 32) & _MASK) ^ odd ^ round_key
        odd = _exchanged(product & _MASK)
    return cast("tuple[Words, ...]", (even[0], odd[0], even[1], odd[1]))


def random_bits(
    seeds: Sequence[int], domain: Domain | Sequence[Domain], steps: Sequence[int], offsets: Sequence[int]
) -> Tensor:
    """Draws [N] of 53 bits each: int64 in [0, 2^53), on the CPU.

    `seeds` and `steps` are below 2^64, `offsets` below 2^32; all have length N, and so has
    `domain` unless it is one for all. Computed in numpy, whose calls cost
    a fraction of torch's on arrays this small.
    """
    counter = np.empty((4, len(seeds)), dtype=np.int64)
    counter[0] = domain
    counter[1:3] = _split(steps)
    counter[3] = offsets
    word0, word1, _, _ = philox4x32(counter, _split(seeds))
    return torch.from_numpy((word0 << (BITS - 32)) | (word1 >> (64 - BITS)))


def uniforms(
    seeds: Sequence[int], domain: Domain | Sequence[Domain], steps: Sequence[int], offsets: Sequence[int]
) -> Tensor:
    """Draws [N] in [0, 1): float64 with 53 random bits, on the CPU. Arguments as for `random_bits`."""
    return random_bits(seeds, domain, steps, offsets).double() * 2.0**-BITS


def _split(values: Sequence[int]) -> np.ndarray:
    """Low and high 32-bit words [2, N] of integers below 2^64."""
    words = np.array(values, dtype=np.uint64).view(np.int64)
    return np.stack((words & _MASK, (words >> 32) & _MASK))


def _constants(like: Words) -> tuple[Words, Words]:
    if isinstance(like, Tensor):
        return torch.from_numpy(_MULTIPLIERS).to(like.device), torch.from_numpy(_KEY_STEPS).to(like.device)
    return _MULTIPLIERS, _KEY_STEPS


def _exchanged(rows: Words) -> Words:
    """The two rows in the other order."""
    return rows.flip(0) if isinstance(rows, Tensor) else rows[::-1]
