"""Draws siblings from a row that is sent (docs/exactness.md, rule 1).

How many are drawn is decided before the first of them is seen. Each draw has a random number of its own: siblings drawn
by the same number would not be independent, nor would two drafts that draw for one tree.
"""

from specpair.speculation.count_row import TOTAL, CountRow, draw_token
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
    bits = [draw_bits(seed, Domain.DRAFT, step, offset + number) for number in range(count)]
    if replaces:
        return [draw_token(row, own) for own in bits]
    left = dict(zip(map(int, row.token_ids), map(int, row.counts), strict=True))
    total = TOTAL
    drawn: list[int] = []
    for own in bits[: len(left)]:
        token = _draw_from(left, (own * total) >> BITS)
        total -= left.pop(token)
        drawn.append(token)
    return drawn


def _draw_from(left: dict[int, int], number: int) -> int:
    """The token that holds a number below the sum of the counts."""
    for token, count in left.items():
        number -= count
        if number < 0:
            return token
    raise AssertionError("the number is not below the sum of the counts")
