"""Counter-based randomness: every draw is a pure function of (seed, domain, step, offset).

Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011). A draw is keyed by the step at
which its block is verified and not by its position: keyed by position the block rule is biased, because the accepted
count tells something about draws that would be used again. Drafting and acceptance live in different domains: with
shared noise both rules are biased.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Word = TypeVar("Word", int, np.ndarray, Tensor)

BITS = 53
"""Random bits of one draw: as many as a float64 in [0, 1) can hold."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_FEW = 16
"""Up to so many draws are computed one by one in plain integers, which is faster than arrays so small."""


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
    GUMBEL_MAXIMUM = 5
    """The largest noise of a group of tokens."""


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Philox4x32-10: four random words for a counter and a key of 32-bit words.

    The words are ints, or int64 arrays or tensors whose shapes broadcast. There a product wraps to 64 bits, the same
    ones whether signed or not, and the masks drop the sign that the shifts bring in.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0 = c0 * _MULTIPLIERS[0]
        product1 = c2 * _MULTIPLIERS[1]
        c0, c1 = ((product1 >> 32) ^ c1 ^ k0) & _MASK, product1 & _MASK
        c2, c3 = ((product0 >> 32) ^ c3 ^ k1) & _MASK, product0 & _MASK
        k0 = (k0 + _KEY_STEPS[0]) & _MASK
        k1 = (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def random_bits(
    seeds: Sequence[int], domain: Domain | Sequence[Domain], steps: Sequence[int], offsets: Sequence[int]
) -> Tensor:
    """Draws [N] of 53 bits each: int64 in [0, 2^53), on the CPU.

    `seeds` and `steps` are below 2^64, `offsets` below 2^32; all have length N, and so has `domain` unless it is one
    for all.
    """
    if len(seeds) <= _FEW:
        domains = [domain] * len(seeds) if isinstance(domain, Domain) else domain
        keys = zip(seeds, domains, steps, offsets, strict=True)
        return torch.tensor([_draw_bits(*key) for key in keys], dtype=torch.int64)
    words = np.broadcast_to(np.asarray(domain), len(seeds))
    return torch.from_numpy(_draw_bits(_wrapped(seeds), words, _wrapped(steps), np.asarray(offsets)))


def uniforms(
    seeds: Sequence[int], domain: Domain | Sequence[Domain], steps: Sequence[int], offsets: Sequence[int]
) -> Tensor:
    """Draws [N] in [0, 1): float64 with 53 random bits, on the CPU. Arguments as for `random_bits`."""
    return random_bits(seeds, domain, steps, offsets).double() * 2.0**-BITS


def philox_words(
    seeds: Sequence[int] | np.ndarray,
    domain: Domain,
    steps: Sequence[int] | np.ndarray,
    offsets: np.ndarray,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits for each of `offsets` [N, M], keyed by the N seeds and steps: int64, on `device`.

    On a CPU by numpy, whose operations on arrays so small take a third of the time.
    """
    numbers = [_wrapped(seeds)[:, None], _wrapped(steps)[:, None], np.ascontiguousarray(offsets, dtype=np.int64)]
    is_cpu = device.type == "cpu"
    seed, step, offset = numbers if is_cpu else [torch.from_numpy(n).to(device) for n in numbers]
    words = philox4x32((int(domain), *_halves(step), offset), _halves(seed))
    word0, word1, word2, word3 = (torch.from_numpy(word) for word in words) if is_cpu else words
    return word0, word1, word2, word3


def _draw_bits(seed: Word, domain: Word, step: Word, offset: Word) -> Word:
    word0, word1, _, _ = philox4x32((domain, *_halves(step), offset), _halves(seed))
    return (word0 << (BITS - 32)) | (word1 >> (64 - BITS))


def _halves(number: Word) -> tuple[Word, Word]:
    """The low and the high 32 bits."""
    return number & _MASK, (number >> 32) & _MASK


def _wrapped(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Integers below 2^64 as int64 [N] with the same bits."""
    return np.array(values, dtype=np.uint64).view(np.int64)
