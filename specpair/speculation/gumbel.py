"""Choosing with Gumbel noise that draft and target share: argmax of log p(x) + g(x) is distributed as p.

The noise g of a token is a pure function of (seed, position, token), so similar distributions make similar choices:
they differ with probability at most 2 TV / (1 + TV) (Daliri et al. 2024, "Coupling without Communication and
Drafter-Invariant Speculative Decoding"). Only the tokens need to be sent.

It is computed as a race. exp(-g) is exponentially distributed, and the argmax of log p + g is the token with the
smallest exp(-g) / p: the first to arrive if each token arrives at rate p. Here exp(-g) = -log(1 - u) with u uniform,
53 bits. Since that is at least u, a token can arrive by time t only if u <= t p, which the upper 16 bits of u nearly
always decide. Those bits are drawn for the whole vocabulary, the rest only for the few tokens that are left.

On a CPU the compiled library runs it, where it is loaded (`native_racing`); numpy is the reference.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specpair.speculation.device_randomness import device_words
from specpair.speculation.native_racing import race
from specpair.speculation.outlook import Outlook
from specpair.speculation.randomness import BITS, Domain, draw_bits, random_bits, random_words
from specpair.speculation.sparse_gumbel import LANE_BITS, LANES

_LOWER_BITS = BITS - LANE_BITS
_LANE_ENDS = np.array([[0], [1]])
_LIMITS = (8.0, 512.0, math.inf)
"""Time limits of the race, tried in order until the winner is found. If the rates sum to 1, the winner arrives by time
t with probability 1 - exp(-t), and about t tokens do."""

Key = tuple[int, int]
"""Seed and position."""


class Contenders(NamedTuple):
    """N tokens that may come in time."""

    rows: np.ndarray
    """[N] int64."""
    tokens: np.ndarray
    """[N] int64."""
    rates: np.ndarray
    """[N] float64: the probabilities p."""
    lanes: np.ndarray
    """[N] int64: the upper bits of the uniforms."""

    def select(self, chosen: np.ndarray) -> "Contenders":
        return Contenders(*(part[chosen] for part in self))


def choose(probabilities: Tensor, seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """The choice of each row [R, V], the argmax of log p + g for its seed and position: int64 [R] on the CPU.

    `seeds` and `positions` (the number of tokens before the chosen one) are below 2^64. Rows need not be normalised;
    one without a positive entry gives 0. A token of probability 0 is never chosen. Only contenders leave the device.
    """
    if (raced := race(probabilities, seeds, positions)) is not None:
        return raced[0]
    return torch.from_numpy(_winners(probabilities, list(zip(seeds, positions, strict=True)), _LIMITS))


def choose_and_look(
    probabilities: Tensor, seeds: Sequence[int], positions: Sequence[int], width: int
) -> tuple[Tensor, list[Outlook]]:
    """The choices of `choose`, and for each row the first `width` tokens to arrive: the likeliest choices of a row like
    it.

    These are ordered by the upper bits of their times alone, and of those that come late some are missing: they are
    guesses, no draws. A row without a positive entry has none.
    """
    if (raced := race(probabilities, seeds, positions, width)) is not None:
        return raced
    keys = list(zip(seeds, positions, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = _finder(probabilities)(probabilities, keys, _LIMITS[0])
        found = found.select(found.rates > 0.0)  # a token of probability 0 may have upper bits of 0
        speeds = found.rates / -np.log1p((found.lanes + 0.5) * -(2.0**-LANE_BITS))
    order = np.lexsort((-speeds, found.rows))
    tokens, speeds = found.tokens[order], speeds[order]
    ends = np.searchsorted(found.rows[order], np.arange(len(keys) + 1)).tolist()
    outlooks = [_outlook(tokens[i : min(i + width, j)], speeds[i : min(i + width, j)]) for i, j in pairwise(ends)]
    return torch.from_numpy(_winners(probabilities, keys, _LIMITS, found)), outlooks


def _outlook(tokens: np.ndarray, speeds: np.ndarray) -> Outlook:
    return Outlook(tokens.tolist(), (speeds / speeds.sum()).tolist())


def noise(seeds: Sequence[int], positions: Sequence[int], vocab_size: int) -> Tensor:
    """The whole noise g [R, V] float64 that `choose` uses, for inspection."""
    keys = list(zip(seeds, positions, strict=True))
    lower = np.stack([random_bits(seed, Domain.GUMBEL_LOWER, position, vocab_size) for seed, position in keys])
    return -torch.from_numpy(_arrivals(_lanes(keys, vocab_size).astype(np.int64), lower)).log()


def _winners(
    probabilities: Tensor, keys: list[Key], limits: tuple[float, ...], found: Contenders | None = None
) -> np.ndarray:
    """The first token to arrive in each row [R, V]: int64 [R]. Tries the time limits in order; `found` are the tokens
    that may come up to the first."""
    with np.errstate(divide="ignore", invalid="ignore"):  # tokens of probability 0 never arrive: nan or inf
        found = found or _finder(probabilities)(probabilities, keys, limits[0])
        earliest, latest = -np.log1p((found.lanes + _LANE_ENDS) * -(2.0**-LANE_BITS)) / found.rates
        bounds = np.full(len(keys), np.inf)
        np.minimum.at(bounds, found.rows, latest)
        leading = (earliest <= bounds[found.rows]).nonzero()[0]
        if len(leading) == len(keys) and (bounds <= limits[0]).all() and np.isfinite(bounds).all():
            return found.tokens[leading]  # one of each row
        winners, times = _finish(found.select(leading), keys)
    late = (times > limits[0]).nonzero()[0]
    if len(late):
        rows = torch.from_numpy(late).to(probabilities.device)
        winners[late] = _winners(probabilities[rows], [keys[row] for row in late], limits[1:])
    return winners


def _finish(left: Contenders, keys: list[Key]) -> tuple[np.ndarray, np.ndarray]:
    """The first token [R] of each row and its time [R], by all bits of the noise; 0 and inf where none is left."""
    winners, times = np.zeros(len(keys), dtype=np.int64), np.full(len(keys), np.inf)
    entries = zip(left.rows.tolist(), left.tokens.tolist(), strict=True)
    draws = [draw_bits(keys[row][0], Domain.GUMBEL_LOWER, keys[row][1], token) for row, token in entries]
    finished = _arrivals(left.lanes, np.array(draws, dtype=np.int64)) / left.rates
    np.minimum.at(times, left.rows, finished)
    wins = finished == times[left.rows]
    winners[left.rows[wins]] = left.tokens[wins]
    return winners, times


def _finder(probabilities: Tensor) -> Callable[[Tensor, list[Key], float], Contenders]:
    return _find if probabilities.device.type == "cpu" else _find_on_device


def _find(probabilities: Tensor, keys: list[Key], limit: float) -> Contenders:
    """The tokens of rows [R, V] on the CPU that may come up to the limit."""
    rates, lanes = probabilities.numpy(), _lanes(keys, probabilities.shape[1])
    places = (lanes <= rates * (limit * 2.0**LANE_BITS)).ravel().nonzero()[0]  # ten times as fast as in 2 dimensions
    rows, tokens = np.divmod(places, rates.shape[1])
    return Contenders(rows, tokens, rates[rows, tokens].astype(np.float64), lanes[rows, tokens].astype(np.int64))


def _find_on_device(probabilities: Tensor, keys: list[Key], limit: float) -> Contenders:
    """The same of rows on a device, with one transfer."""
    seeds, positions = zip(*keys, strict=True)
    width, device = probabilities.shape[1], probabilities.device
    words = device_words(seeds, Domain.GUMBEL, positions, -(-width // LANES), device)
    shifts = LANE_BITS * torch.arange(LANES, device=device)
    lanes = ((words[..., None] >> shifts) & (2**LANE_BITS - 1)).flatten(1)[:, :width]
    rows, tokens = (lanes <= probabilities * (limit * 2.0**LANE_BITS)).nonzero(as_tuple=True)
    found = torch.stack((rows, tokens, lanes[rows, tokens]))
    parts = torch.cat((found.double(), probabilities[rows, tokens].double()[None])).cpu().numpy()
    rows, tokens, lanes = parts[:3].astype(np.int64)
    return Contenders(rows, tokens, parts[3], lanes)


def _lanes(keys: list[Key], width: int) -> np.ndarray:
    """The upper bits of all uniforms: uint16 [R, width]."""
    words = np.empty((len(keys), -(-width // LANES)), dtype="<u8")
    rows: dict[Key, int] = {}
    for row, key in enumerate(keys):
        if (same := rows.setdefault(key, row)) < row:  # branches of one sequence share the noise of a position
            words[row] = words[same]
        else:
            words[row] = random_words(key[0], Domain.GUMBEL, key[1], 0, words.shape[1])
    return words.view("<u2")[:, :width]


def _arrivals(lanes: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """exp(-g), float64, for uniforms with upper bits `lanes` and lower bits from `draws`; never 0."""
    uniforms = ((lanes << _LOWER_BITS) | (draws >> LANE_BITS)) * 2.0**-BITS
    return np.maximum(-np.log1p(-uniforms), 2.0 ** -(BITS + 1))
