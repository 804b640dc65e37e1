"""The sizes that captured passes come in: a pass is padded to the next larger one."""

from bisect import bisect_left

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Rows of a pass. Close together where decoding is: K + 1 rows for one request, or one row for each of a few."""
DETERMINISTIC_ROWS = (16,)
"""One size alone, so that all products have one shape."""
FEWEST_KEYS = 128


def row_bucket(row_count: int, sizes: tuple[int, ...]) -> int:
    """The smallest size that holds so many rows, of which there must be one."""
    return sizes[bisect_left(sizes, row_count)]


def key_bucket(key_count: int, most: int) -> int:
    """How many keys are gathered for rows that see at most `key_count`: the next power of two from FEWEST_KEYS on, at
    most `most`."""
    return min(most, max(FEWEST_KEYS, 1 << (key_count - 1).bit_length()))
