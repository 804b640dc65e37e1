"""The tensors of chains that are drawn on the device: what each step reads and notes, always in the same place."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specpair.models.chain_row import ChainKind, ChainRow, DrawnChain
from specpair.models.staging import Copy, Staging, copy_by_torch
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.device_counts import count_row_of
from specpair.speculation.device_randomness import as_signed
from specpair.speculation.sampling import SamplingUse
from specpair.speculation.sparse_rows import MAX_SUPPORT

MOST_STEPS = 32
"""Tokens of the longest chain."""
_TOKEN, _IS_FINITE, _SHARE, _FIRST_COUNT = range(4)
"""Columns of a record; after them come ids and counts."""


class ChainTensors:
    """For one number of rows of one kind. As `SamplingNumbers` they give the options of the rows."""

    is_fixed = True

    def __init__(
        self, row_count: int, kind: ChainKind, vocab_size: int, device: torch.device, copy: Copy = copy_by_torch
    ):
        self.kind = kind
        self._support = min(MAX_SUPPORT, vocab_size) if kind.draws else 0
        self._row_count, self._vocab_size = row_count, vocab_size
        self._sizes = [1, 5 * row_count, MOST_STEPS * row_count, 2 * row_count]
        """Of the step, whole numbers, random bits and, of half as many bytes, fractions."""
        self.staging = Staging(sum(self._sizes), device, copy)
        self.step, numbers, bits, fractions = self.staging.on_device.split(self._sizes)
        floats = fractions.view(torch.float32)[: 3 * row_count].view(3, row_count)
        self.temperature, self.top_p, self.min_p = floats
        self.top_k, self.seeds, self.counts, self._vocab_sizes, self._coupled = numbers.view(5, row_count)
        self._bits = bits.view(MOST_STEPS, row_count)
        self.logits = torch.zeros(row_count, vocab_size, device=device)
        width = _FIRST_COUNT + 2 * self._support
        self.records = torch.zeros(MOST_STEPS, row_count, width, dtype=torch.int32, device=device)
        """Token, whether its row was finite, its share as bits, then the ids and counts, of each step and row."""
        self._ids = torch.arange(vocab_size, device=device)
        self.clear()

    @property
    def use(self) -> SamplingUse:
        return self.kind.use

    @property
    def are_raced(self) -> Tensor:
        """bool `[rows]`."""
        return self._coupled > 0

    def clear(self) -> None:
        """Makes all rows padding, which feeds nothing, here and on the device."""
        self._write(())
        self.staging.run(self.load)

    def fill(self, chains: Sequence[ChainRow], logits: Tensor) -> None:
        """Takes the chains and their first logits `[chains, vocabulary]`. Work that loads them must follow."""
        self._write(chains)
        self.logits[: len(chains)].copy_(logits)

    def _write(self, chains: Sequence[ChainRow]) -> None:
        count = len(chains)
        filled = self.staging.writable()
        filled[:] = 0
        _, numbers, bits, fractions = np.split(filled, np.cumsum(self._sizes)[:-1])
        numbers, bits = numbers.reshape(5, -1), bits.reshape(MOST_STEPS, -1)
        floats = fractions.view(np.float32)[: 3 * self._row_count].reshape(3, -1)
        floats[:], numbers[3] = 1.0, self._vocab_size
        if chains:
            floats[:, :count] = [
                [getattr(row.sampling, name) for row in chains] for name in ("temperature", "top_p", "min_p")
            ]
            numbers[0, :count] = [min(row.sampling.top_k, self._vocab_size) for row in chains]
            numbers[1, :count] = as_signed([row.sampling.seed for row in chains])
            numbers[2:, :count] = [
                [row.count for row in chains],
                [row.vocab_size for row in chains],
                [row.is_coupled for row in chains],
            ]
        for place, row in enumerate(chains):
            bits[: len(row.bits), place] = row.bits

    def load(self) -> Tensor:
        """Reads what the host wrote, and begins with the first step. On the device alone."""
        self.staging.load(sum(self._sizes))
        return self.step

    def masked_logits(self) -> Tensor:
        """`[rows, vocabulary]` without the ids that may not be drawn."""
        if not self.kind.masks:
            return self.logits
        return self.logits.masked_fill(self._ids >= self._vocab_sizes[:, None], -torch.inf)

    def bits_now(self) -> Tensor:
        """The random bits of this step, int64 `[rows]`."""
        return self._bits.index_select(0, self.step)[0]

    def note(self, tokens: Tensor, finite: Tensor, shares: Tensor, counted: tuple[Tensor, ...]) -> None:
        """Keeps what this step drew for each row."""
        columns = [tokens.int(), finite.int(), shares.view(torch.int32)]
        parts = [torch.stack(columns, 1), *(part.int() for part in counted)]
        self.records.index_copy_(0, self.step, torch.cat(parts, 1)[None])

    def next_step(self) -> None:
        """A graph is also run while it is captured, when nothing counts the steps."""
        self.step.add_(1).remainder_(MOST_STEPS)

    def fetch(self, chains: Sequence[ChainRow], step_count: int) -> list[DrawnChain]:
        """What was drawn: one copy to the host, which waits for the device."""
        records = self.records[:step_count, : len(chains)].cpu().numpy()
        return [self._drawn(chain, records[: chain.count, place]) for place, chain in enumerate(chains)]

    def _drawn(self, chain: ChainRow, records: np.ndarray) -> DrawnChain:
        """Of records `[count, width]`, those before the first row that could not be sampled."""
        usable = int(np.logical_and.accumulate(records[:, _IS_FINITE] > 0).sum())
        kept = records[:usable]
        tokens: list[int] = kept[:, _TOKEN].tolist()
        counts: list[CountRow] = []
        if not chain.is_coupled and chain.sampling.is_greedy:
            counts = [CountRow((token,), (TOTAL,)) for token in tokens]
        elif not chain.is_coupled:
            split = _FIRST_COUNT + self._support
            counts = [count_row_of(row[_FIRST_COUNT:split], row[split:]) for row in kept]
        shares: list[float] = np.ascontiguousarray(kept[:, _SHARE]).view(np.float32).tolist()
        return DrawnChain(tokens, counts, shares, outlooks=[], is_over=True)
