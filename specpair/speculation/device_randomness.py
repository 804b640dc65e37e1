"""The random words of `randomness`, made on a device: Philox4x64 by the kernel, or by tensor operations."""

import logging
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from specpair.speculation.randomness import Domain

log = logging.getLogger(__name__)

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


def device_words(
    seeds: Sequence[int], domain: Domain, steps: Sequence[int], count: int, device: torch.device
) -> Tensor:
    """The first words of R streams, made on a device: int64 [R, count] with the bits of `random_words`."""
    seed, step = (torch.from_numpy(as_signed(numbers)).to(device) for numbers in (seeds, steps))
    return leading_words(seed, domain, step, count)


def leading_words(seeds: Tensor, domain: Domain, steps: Tensor, count: int) -> Tensor:
    """The same by seeds and steps that are on the device: int64 [R], as unsigned bits."""
    blocks = torch.arange(-(-count // 4), device=seeds.device).expand(len(seeds), -1)
    return _blocks_of_words(seeds, domain, steps, blocks).flatten(1)[:, :count]


def words_at(seeds: Tensor, domain: Domain, steps: Tensor, places: Tensor) -> Tensor:
    """Single words of R streams: int64 [R, N] at places [R, N]."""
    words = _blocks_of_words(seeds, domain, steps, places >> 2)
    return words.gather(-1, (places & 3)[..., None])[..., 0]


def _blocks_of_words(seeds: Tensor, domain: Domain, steps: Tensor, blocks: Tensor) -> Tensor:
    """Four words [R, N, 4] of each of the blocks [R, N] of R streams."""
    if has_philox(blocks.device):
        from specpair.kernels.philox_kernel import philox_words  # imports triton

        return philox_words(seeds, int(domain), steps, blocks)
    return _words_by_operators(seeds, int(domain), steps, blocks)


def _words_by_operators(seeds: Tensor, domain: int, steps: Tensor, blocks: Tensor) -> Tensor:
    """The same by torch's operators, on any device."""
    zeros = torch.zeros_like(blocks)
    counter = (blocks + 1, zeros + steps[:, None], zeros, zeros)
    return torch.stack(philox4x64(counter, (seeds[:, None], domain)), -1)


@cache
def has_philox(device: torch.device) -> bool:
    """Whether the kernel runs on this device, and gives the words that the operators do."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    seeds = steps = torch.arange(2, device=device)
    blocks = torch.arange(8, device=device).expand(2, -1)
    expected = _words_by_operators(seeds, 1, steps, blocks)
    try:
        found = import_module("specpair.kernels.philox_kernel").philox_words(seeds, 1, steps, blocks)
    except Exception as error:  # compilers, drivers and launchers raise what they like
        log.info("noise by torch's operators: %s", (str(error) or type(error).__name__).strip().partition("\n")[0])
        return False
    return torch.equal(found, expected)


def philox4x64(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor | int, Tensor | int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x64-10: four words for each counter, whose words are int64 tensors of one shape, as unsigned bits.

    The two multiplied words share one tensor, because the cost of small tensors is launching operations.
    """
    evens, odds = torch.stack(counter[::2]), torch.stack(counter[1::2])
    multipliers = _column(_MULTIPLIERS, evens)
    keys = torch.stack([torch.zeros_like(evens[0]) + part for part in key])
    key_steps = _column(_KEY_STEPS, evens)
    for _ in range(_ROUNDS):
        high, low = _product(evens, multipliers)
        evens, odds = high.flip(0) ^ odds ^ keys, low.flip(0)
        keys = keys + key_steps
    return evens[0], odds[0], evens[1], odds[1]


def _product(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The upper and the lower 64 bits of products of unsigned 64-bit numbers."""
    left_high, left_low = _upper(left), left & _MASK
    right_high, right_low = _upper(right), right & _MASK
    carried = left_high * right_low + _upper(left_low * right_low)
    middle = left_low * right_high + (carried & _MASK)
    return left_high * right_high + _upper(carried) + _upper(middle), left * right


def _upper(numbers: Tensor) -> Tensor:
    """The upper 32 bits, without the sign bits that the shift adds."""
    return (numbers >> 32) & _MASK


def _column(numbers: Sequence[int], like: Tensor) -> Tensor:
    """Unsigned numbers [N] as int64 [N, 1, ..], to multiply `like` [N, ..]. Made on its device: a captured graph copies
    nothing from the host."""
    shape = (1,) * (like.dim() - 1)
    filled = [
        torch.full(shape, number, dtype=torch.int64, device=like.device) for number in as_signed(numbers).tolist()
    ]
    return torch.stack(filled)


def as_signed(numbers: Sequence[int]) -> np.ndarray:
    """Integers below 2^64 as int64 [N] with the same bits."""
    return np.array(numbers, dtype=np.uint64).view(np.int64)
