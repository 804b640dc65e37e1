"""Distributions of drawn tokens as integer counts: as they are sent, without padding.

The compiled library reads them as they are. What else needs them has them padded, which is then done once.
"""

from array import array
from functools import cached_property
from struct import pack
from typing import TypeAlias

import numpy as np

from specpair.speculation.count_row import UINT32
from specpair.speculation.draft_rows import DraftRows

ONE = pack("<I", 1)


class CountedRows:
    """K rows of counts whose form was checked: what `DraftRows` have, and the counts themselves."""

    def __init__(self, numbers: "array[int]", id_bytes: bytes, count_bytes: bytes, total_log2: int, vocab_size: int):
        self.numbers = numbers
        """int64 [3 K]: the sizes of the rows, each at least 1; then the drawn tokens; then their counts, which are not
        0. No numpy array, whose making and address take several times as long."""
        self.id_bytes = id_bytes
        """uint32: the tokens of the rows, one row after the other, each at most once in a row."""
        self.count_bytes = count_bytes
        """uint32: their counts, at least 1."""
        self.total_log2 = total_log2
        """Binary logarithm of the sum of each row."""
        self.vocab_size = vocab_size
        """All tokens are below it."""

    @classmethod
    def one_hot(cls, tokens: list[int], vocab_size: int) -> "CountedRows":
        """All mass on tokens [K]."""
        ones = [1] * len(tokens)
        numbers = array("q", [*ones, *tokens, *ones])
        return cls(numbers, pack(f"<{len(tokens)}I", *tokens), ONE * len(tokens), 0, vocab_size)

    @property
    def count(self) -> int:
        """K."""
        return len(self.numbers) // 3

    @property
    def table(self) -> np.ndarray:
        """`numbers` as [3, K]."""
        return np.frombuffer(self.numbers, dtype=np.int64).reshape(3, -1)

    @property
    def token_ids(self) -> np.ndarray:
        """[K, S] int64; padding is 0."""
        return self.padded.token_ids

    @property
    def probabilities(self) -> np.ndarray:
        """[K, S] float64; padding is 0."""
        return self.padded.probabilities

    @property
    def drawn(self) -> np.ndarray:
        """[K] float64: the probabilities of the drawn tokens."""
        return self.table[2] * 2.0**-self.total_log2

    @property
    def width(self) -> int:
        """S: the largest number of tokens in a row, at least 1."""
        return max(self.numbers[: self.count], default=1)

    @property
    def byte_count(self) -> int:
        return 8 * len(self.numbers) + len(self.id_bytes) + len(self.count_bytes)

    def beginning(self, count: int) -> "CountedRows":
        """The first `count` rows."""
        numbers = array("q", self.table[:, :count].tobytes())
        end = sum(numbers[:count]) * UINT32.itemsize
        return CountedRows(numbers, self.id_bytes[:end], self.count_bytes[:end], self.total_log2, self.vocab_size)

    @cached_property
    def padded(self) -> DraftRows:
        sizes = self.table[0]
        token_ids = _padded(np.frombuffer(self.id_bytes, dtype=UINT32), sizes, self.width).astype(np.int64)
        counts = _padded(np.frombuffer(self.count_bytes, dtype=UINT32), sizes, self.width)
        return DraftRows(token_ids, counts * 2.0**-self.total_log2, self.drawn)


SentRows: TypeAlias = DraftRows | CountedRows
"""The distributions of a proposal: dense ones, or counts."""


def _padded(flat: np.ndarray, sizes: np.ndarray, width: int) -> np.ndarray:
    """Rows of different sizes [K], one after the other, as [K, width], padded with 0."""
    if len(flat) == len(sizes) * width:
        return flat.reshape(-1, width)
    padded = np.zeros((len(sizes), width), dtype=flat.dtype)
    first = 0
    for row, size in zip(padded, sizes.tolist(), strict=True):
        row[:size] = flat[first : first + size]
        first += size
    return padded
