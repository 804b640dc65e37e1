"""One row of a draft in the form in which it is sent: integer counts on a small support.

`sparse_rows` makes such rows from a model's probabilities. `count_row` makes them one by one, for drafters without a
model, which have few candidates.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specpair.speculation.randomness import BITS

TOTAL_LOG2 = 24
"""Binary logarithm of the sum of the counts of a sparse row."""
TOTAL = 1 << TOTAL_LOG2
UINT32 = np.dtype("<u4")
"""Token ids and counts as they are sent."""


class CountRow(NamedTuple):
    """The distribution counts / 2^TOTAL_LOG2."""

    token_ids: Sequence[int] | np.ndarray
    """[S]; each token once."""
    counts: Sequence[int] | np.ndarray
    """[S], at least 1; they sum to 2^TOTAL_LOG2."""

    def share_of(self, token: int) -> float:
        """The probability of a token."""
        ids = self.token_ids
        if isinstance(ids, np.ndarray):
            return float(np.asarray(self.counts)[ids == token].sum()) / TOTAL
        return int(self.counts[ids.index(token)]) / TOTAL if token in ids else 0.0

    @property
    def is_one_hot(self) -> bool:
        return len(self.token_ids) == 1


def count_row(token_ids: Sequence[int], weights: Sequence[float]) -> CountRow:
    """The row of tokens [S] with counts in proportion to weights [S], of which at least one is positive.

    Counts are rounded down, tokens with count 0 are dropped, and the heaviest token gets the remainder.
    """
    if len(token_ids) == 1:
        return CountRow(token_ids, (TOTAL,))
    scale = TOTAL / sum(weights)
    counts = [int(weight * scale) for weight in weights]
    counts[weights.index(max(weights))] += TOTAL - sum(counts)
    if 0 in counts:
        held = [place for place, count in enumerate(counts) if count]
        return CountRow([token_ids[place] for place in held], [counts[place] for place in held])
    return CountRow(token_ids, counts)


def draw_token(row: CountRow, bits: int) -> int:
    """The token drawn by bits of `randomness.draw_bits`. Exact: 24 of the bits choose one of the 2^24 counts."""
    left = bits >> (BITS - TOTAL_LOG2)
    for token, count in zip(row.token_ids, row.counts, strict=True):
        left -= count
        if left < 0:
            return token
    raise AssertionError("the counts sum to less than 2^TOTAL_LOG2")
