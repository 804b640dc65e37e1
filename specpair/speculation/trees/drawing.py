"""Draws siblings from a row that is sent (docs/exactness.md, rule 1).

How many are drawn is decided before the first of them is seen. Each draw has a random number of its own: siblings drawn
by the same number would not be independent, nor would two drafts that draw for one tree.
"""

import numpy as np

from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.randomness import BITS, Domain, draw_bits

DRAFT_STRIDE = 1 << 20
"""Random numbers that one draft may use for one tree."""


def first_offset(draft_index: int) -> int:
    """The offset of the first draw of one of several drafts whose trees are merged. Draft 0 draws like an only one."""
    return draft_index * DRAFT_STRIDE


def draw_siblings(row: CountRow, count: int, seed: int, step: int, offset: int, *, replaces: bool) -> list[int]:
    """Draws `count` tokens, numbers `offset` and following of the tree; a chain has one of each row.

    With replacement tokens may repeat. Without it there are at most as many as the row has tokens.
    """
    counts, total = np.array(row.counts, dtype=np.int64), TOTAL
    drawn: list[int] = []
    while len(drawn) < count and total:
        number = (draw_bits(seed, Domain.DRAFT, step, offset + len(drawn)) * total) >> BITS
        place = int(counts.cumsum().searchsorted(number, side="right"))
        drawn.append(int(row.token_ids[place]))
        if not replaces:
            total -= int(counts[place])
            counts[place] = 0
    return drawn
