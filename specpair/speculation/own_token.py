"""The target's own token under the token rule and the block rule: the correction or the bonus, and how a draft foresees
it.

It is drawn by the race of `gumbel`, with noise keyed by (seed, step), which no position has (`OWN`): the first token to
arrive, if each arrives at the rate of its weight. So it is distributed as the weights, as by any other way to draw. But
a draft can make the same noise. It does not know the weights; with its own row in their place the same race gives the
tokens that are likely to be the target's, which it prepares proposals for. What it draws itself comes from noise of
another domain, so nothing that is judged depends on this noise (docs/exactness.md, rule 7).
"""

from collections.abc import Sequence

import numpy as np
import torch

from specpair.speculation import native_racing
from specpair.speculation.arrays import Array
from specpair.speculation.count_row import CountRow
from specpair.speculation.device_race import race_in_parts
from specpair.speculation.gumbel import choose, choose_and_look
from specpair.speculation.outlook import WIDTH, Outlook
from specpair.speculation.randomness import Domain, random_words
from specpair.speculation.sparse_gumbel import LANE_BITS, LANES

OWN = 1 << 63
"""Turned in a step, it gives a key that no position has: a text that is resumed under another rule meets no noise
again."""


def draw_own(weights: Array, seeds: Array, steps: Array) -> Array:
    """Draws ids [N] in proportion to weights [N, V], by the noise of each row's seed and step: int64 [N].

    `seeds` and `steps` [N] are int64, as unsigned bits: numpy arrays, or tensors on one device, as the weights are, and
    so is the result. Weights need not be normalised. A token of weight 0 is never drawn; a row without a positive
    weight, or with NaN, gives some id below V.
    """
    if isinstance(weights, np.ndarray):
        keys = seeds.view(np.uint64).tolist(), (steps.view(np.uint64) ^ np.uint64(OWN)).tolist()
        return choose(torch.from_numpy(to_rates(weights)), *keys).numpy()
    return race_in_parts(weights, seeds, steps ^ -OWN)


def to_rates(weights: np.ndarray) -> np.ndarray:
    """Weights [N, V] as float32 rows. Those of float64 are scaled to sums between 1/2 and 1, by powers of 2: so the
    race has the same winner whatever rounding does to the sum."""
    if weights.dtype == np.float32:
        return weights
    sums = weights.sum(-1, keepdims=True)
    return np.ldexp(weights, -np.frexp(sums)[1]).astype(np.float32)


def foresee(rows: Sequence[CountRow], seed: int, step: int) -> list[Outlook]:
    """For each of the draft's rows, the first tokens to arrive in the race that draws the target's own token of the
    step: if the target's weights were this row. By the compiled library, where it is loaded; numpy is the reference."""
    if not rows:
        return []
    if (foreseen := native_racing.foresee(rows, seed, step)) is not None:
        return foreseen
    tokens = [np.asarray(row.token_ids, dtype=np.int64) for row in rows]
    largest = max(int(own.max(initial=0)) for own in tokens)
    lanes = random_words(seed, Domain.GUMBEL, step ^ OWN, 0, largest // LANES + 1).view("<u2")
    return [_outlook(own, row, lanes) for own, row in zip(tokens, rows, strict=True)]


def foresee_dense(rows: Sequence[torch.Tensor], seed: int, step: int) -> list[Outlook]:
    """The same for rows of probabilities [V]."""
    count = len(rows)
    return foresee_rows(torch.stack(list(rows)), [seed] * count, [step] * count) if count else []


def foresee_rows(rows: torch.Tensor, seeds: Sequence[int], steps: Sequence[int]) -> list[Outlook]:
    """The same for rows [N, V] of different sequences."""
    return choose_and_look(rows, seeds, [step ^ OWN for step in steps], WIDTH)[1]


def _outlook(tokens: np.ndarray, row: CountRow, lanes: np.ndarray) -> Outlook:
    """As in `gumbel.choose_and_look`, times are those of the middle of the upper bits."""
    middles = (lanes[tokens] + 0.5) * -(2.0**-LANE_BITS)
    speeds = np.asarray(row.counts) / -np.log1p(middles)
    if len(tokens) > WIDTH:
        fastest = np.argpartition(speeds, -WIDTH)[-WIDTH:]
        tokens, speeds = tokens[fastest], speeds[fastest]
    order = np.argsort(-speeds)
    speeds = speeds[order]
    return Outlook(tokens[order].tolist(), (speeds / speeds.sum()).tolist())
