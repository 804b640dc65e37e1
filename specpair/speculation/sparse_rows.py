"""Converts a model's probabilities to rows of integer counts on a small support, and draws from them.

It works row by row in numpy: a row leaves some hundred tokens, too few for a padded batch to gain anything.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specpair.native.library import quick_functions
from specpair.speculation.count_row import TOTAL, TOTAL_LOG2, CountRow
from specpair.speculation.device_counts import count_row_of, device_counts
from specpair.speculation.randomness import BITS

MASS_CUT = 2.0**-8
"""Largest mass that a row may leave out, and so the largest loss of acceptance."""

MAX_SUPPORT = 1024
"""Most tokens of a row: 8 kB. Flatter rows leave out more mass."""

_LEAST = (2.0**-15, 2.0**-18, 2.0**-22, 0.0)
"""Thresholds, tried in order: tokens that are not more likely are ignored if the others are enough."""


def sparsify(probabilities: Tensor, *, mass_cut: float = MASS_CUT, max_support: int = MAX_SUPPORT) -> list[CountRow]:
    """Keeps the most likely tokens of rows [N, V] until at most `mass_cut` is left out, or `max_support` are kept.

    Of equally likely tokens the first are kept. Counts are rounded down, tokens with count 0 are dropped, and the most
    likely token gets the remainder, at most S / 2^TOTAL_LOG2 of its mass. A one-hot row becomes one token with the full
    count; a row of NaN has no tokens. From a device only the most likely tokens are fetched.
    """
    if (drawn := _draw_natively(probabilities, [0] * len(probabilities), mass_cut, max_support)) is not None:
        return [row for row, _ in drawn]
    if probabilities.device.type == "cpu":
        return [_count_row(row, 1.0 - mass_cut, max_support) for row in probabilities.numpy()]
    return _fetched(probabilities, mass_cut, max_support)


def draw_rows(probabilities: Tensor, bits: Sequence[int]) -> list[tuple[CountRow, int]]:
    """The rows that `sparsify` makes of [N, V], each with the token that `draw_counts` draws from it by bits [N]; token
    0 for a row without tokens."""
    if (drawn := _draw_natively(probabilities, bits)) is not None:
        return drawn
    rows = sparsify(probabilities)
    return [(row, draw_counts(row, own) if len(row.token_ids) else 0) for row, own in zip(rows, bits, strict=True)]


def draw_counts(row: CountRow, bits: int) -> int:
    """Draws a token with 53 random bits, like `draw_token`, from a row made by `sparsify`."""
    chosen = np.uint32(bits >> (BITS - TOTAL_LOG2))
    place = np.add.accumulate(row.counts).searchsorted(chosen, side="right")
    return int(np.asarray(row.token_ids)[place])


def _draw_natively(
    probabilities: Tensor, bits: Sequence[int], mass_cut: float = MASS_CUT, max_support: int = MAX_SUPPORT
) -> list[tuple[CountRow, int]] | None:
    """`draw_rows` by the compiled library; None if it is not loaded, or cannot read the rows.

    It adds in another order, which shows only where tokens below 2^-29 count. Each row depends on itself alone.
    """
    functions = quick_functions(probabilities.numel())
    is_readable = probabilities.dtype == torch.float32 and probabilities.is_contiguous()
    if functions is None or not is_readable or probabilities.device.type != "cpu":
        return None
    count, width = probabilities.shape
    most = min(max_support, width)
    chosen, drawn = array("q", [own >> (BITS - TOTAL_LOG2) for own in bits]), array("q", bytes(16 * count))
    entries = np.empty((count, 2, most), dtype=np.uint32)
    where = chosen.buffer_info()[0], entries.ctypes.data, drawn.buffer_info()[0]
    if functions.specpair_draw_rows(probabilities.data_ptr(), count, width, 1.0 - mass_cut, most, *where):
        return None
    # Copies: rows are kept for a while, and most are short.
    return [
        (CountRow(*own[:, :size].copy()), token)
        for own, size, token in zip(entries, drawn[::2], drawn[1::2], strict=True)
    ]


def _fetched(probabilities: Tensor, mass_cut: float, max_support: int) -> list[CountRow]:
    """Like `sparsify` on a CPU, for rows on a device."""
    found = torch.stack(device_counts(probabilities, mass_cut, max_support)).cpu().numpy()
    return [count_row_of(*row) for row in zip(*found, strict=True)]


class _Support(NamedTuple):
    """The most likely tokens of a row."""

    size: int
    least: float
    """Probability of the last of them."""
    mass: float


def _count_row(row: np.ndarray, mass: float, max_support: int) -> CountRow:
    """The most likely tokens of probabilities [V] that reach `mass`, or `max_support` of them, in order of ids."""
    token_ids, values = _candidates(row, mass, max_support)
    if not len(values):
        return CountRow(token_ids, token_ids)
    support = _smallest_support(values, mass, max_support)
    if support.size < len(values):
        places = _first_largest(values, support)
        token_ids, values = token_ids[places], values[places]
    scale = TOTAL / support.mass
    counts = (values * scale).astype(np.uint32)
    if support.least * scale < 1.0:
        held = counts.nonzero()[0]
        token_ids, values, counts = token_ids[held], values[held], counts[held]
    counts[values.argmax()] += TOTAL - int(np.add.reduce(counts))
    return CountRow(token_ids.astype(np.uint32), counts)


def _candidates(row: np.ndarray, mass: float, max_support: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending ids that include the most likely tokens up to `mass` or `max_support`, and their probabilities in
    float64."""
    token_ids, values = np.zeros(0, dtype=np.int64), np.zeros(0)
    for least in _LEAST:
        token_ids = (row > least).nonzero()[0]
        values = row[token_ids].astype(np.float64)
        if len(token_ids) >= max_support or np.add.reduce(values) >= mass:
            break
    return token_ids, values


def _smallest_support(values: np.ndarray, mass: float, max_support: int) -> _Support:
    """The smallest support among probabilities [N] that reaches `mass` or `max_support`; sorts only what it must."""
    surplus = len(values) - max_support
    leading = values.copy()
    if surplus > 0:
        leading.partition(surplus)
        leading = leading[surplus:]
    total = np.add.reduce(leading)
    if total <= mass:
        return _Support(len(leading), leading.min(), total)
    leading.sort()
    sums = np.add.accumulate(leading[::-1])
    last = min(int(sums.searchsorted(mass)), len(sums) - 1)
    return _Support(last + 1, leading[-1 - last], sums[last])


def _first_largest(values: np.ndarray, support: _Support) -> np.ndarray:
    """Ascending places of the largest of values [N]; of ties with the last one, the first are kept."""
    places = (values >= support.least).nonzero()[0]
    surplus = len(places) - support.size
    if surplus:
        ties = (values[places] == support.least).nonzero()[0]
        places = np.delete(places, ties[-surplus:])
    return places
