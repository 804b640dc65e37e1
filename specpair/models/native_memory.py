"""What the native runner writes between the phases of a pass."""

import ctypes
from typing import Self

import torch

from specpair.models.native_structures import Model, Pass

SCORE_ROUND = 16
KEPT_SCORES = 1024
"""Room for scores grows by so many keys in memory that is kept: texts grow by a token at a time."""
KEPT_TOKENS = 128
"""Memory of passes of at most so many tokens is kept for the next one. Making it anew takes as long as the rest of the
Python around a small pass; a long prompt's is given back."""
QUERIES = 6
"""At most so many queries are attended to together."""


class PassMemory:
    """Memory for one pass at a time, and the structure that names it."""

    def __init__(self, model: Model, dtype: torch.dtype, widths: tuple[int, int], sizes: tuple[int, int, int, int]):
        """`widths` are those of inputs and of projected rows; `sizes`: tokens, rows, scores of a query, threads."""
        tokens, rows, score_count, threads = self._sizes = sizes
        input_width, projected_width = widths
        self._residual = torch.empty(tokens, model.hidden)
        self._projected = torch.empty(tokens, projected_width)
        self._inputs = torch.empty(max(tokens, rows), input_width, dtype=dtype)
        self._gated = torch.empty(tokens, model.intermediate, dtype=dtype)
        self._scores = torch.empty(threads, QUERIES, score_count)
        self.order = Pass(
            residual=self._residual.data_ptr(),
            projected=self._projected.data_ptr(),
            inputs=self._inputs.data_ptr(),
            gated=self._gated.data_ptr(),
            scores=self._scores.data_ptr(),
            score_count=score_count,
            input_stride=input_width,
            projected_stride=projected_width,
        )
        """Its other fields are the pass's own."""
        self.address = ctypes.byref(self.order)

    def holds(self, tokens: int, rows: int, keys: int, threads: int) -> bool:
        """Whether there is room for a pass of so many tokens and rows, which sees at most so many keys."""
        room = self._sizes
        return tokens <= room[0] and rows <= room[1] and keys + 2 * SCORE_ROUND <= room[2] and threads <= room[3]

    @classmethod
    def to_keep(cls, model: Model, dtype: torch.dtype, widths: tuple[int, int], keys: int, threads: int) -> Self:
        """For passes of at most KEPT_TOKENS tokens and rows."""
        return cls(
            model, dtype, widths, (KEPT_TOKENS, KEPT_TOKENS, padded(keys + 2 * SCORE_ROUND, KEPT_SCORES), threads)
        )

    @classmethod
    def once(
        cls, model: Model, dtype: torch.dtype, widths: tuple[int, int], counts: tuple[int, int], keys: int, threads: int
    ) -> Self:
        """For one pass of so many tokens and rows."""
        return cls(model, dtype, widths, (*counts, padded(keys + 2 * SCORE_ROUND, SCORE_ROUND), threads))


class KeptMemory:
    """The memory of the passes of one model, of which one thread at a time runs one. That of small passes is kept."""

    def __init__(self, model: Model, dtype: torch.dtype, widths: tuple[int, int]):
        self._model, self._dtype, self._widths = model, dtype, widths
        self._kept: PassMemory | None = None

    def of(self, tokens: int, rows: int, longest: int) -> PassMemory:
        """For a pass of so many tokens and rows that sees at most `longest` keys, by as many threads as torch has. The
        numbers of the pass are set, the rest of its input is the caller's."""
        threads = torch.get_num_threads()
        memory = self._for(tokens, rows, longest, threads)
        order = memory.order
        order.token_count, order.row_count, order.thread_count = tokens, rows, threads
        return memory

    def _for(self, tokens: int, rows: int, longest: int, threads: int) -> PassMemory:
        if max(tokens, rows) > KEPT_TOKENS:
            return PassMemory.once(self._model, self._dtype, self._widths, (tokens, rows), longest, threads)
        if self._kept is None or not self._kept.holds(tokens, rows, longest, threads):
            self._kept = PassMemory.to_keep(self._model, self._dtype, self._widths, longest, threads)
        return self._kept


def padded(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple
