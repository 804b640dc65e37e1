"""The input of captured passes: the rows of a batch on the host, and the buffers on the device that they fill."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from specpair.caches.holding import Holding
from specpair.caches.paged_cache import PagedCache
from specpair.models.batch import Batch
from specpair.models.staging import Copy, Staging, copy_by_torch


@dataclass(frozen=True, kw_only=True)
class HostRows:
    """A batch as arrays. Each row has a block table of its own, so a pass needs no notion of segments."""

    numbers: np.ndarray
    """Token id, position and slot of each row: int64 `[3, rows]`."""
    tables: np.ndarray
    """The blocks of each row's sequence, in order, and the spare block after them: int32 `[rows, blocks]`."""

    @classmethod
    def of(cls, batch: Batch, cache: PagedCache, width: int) -> Self:
        """`width` is the number of blocks of the longest sequence."""
        count = len(batch.token_ids)
        tables = np.full((count, width), cache.spare_block, dtype=np.int32)
        slots: list[np.ndarray] = []
        first = 0
        for segment in batch.segments:
            blocks = segment.holding.storage
            tables[first : first + segment.token_count, : len(blocks)] = blocks
            slots.append(cache.slots(segment.holding, segment.start, segment.end))
            first += segment.token_count
        return cls(numbers=np.stack([batch.token_ids, batch.positions, np.concatenate(slots)]), tables=tables)

    @classmethod
    def unfed(cls, places: list[tuple[Holding, int]], cache: PagedCache, width: int) -> Self:
        """A row for each holding at a position that was fed before: it writes to the spare block."""
        tables = np.full((len(places), width), cache.spare_block, dtype=np.int32)
        for row, (holding, _) in enumerate(places):
            tables[row, : len(holding.storage)] = holding.storage
        numbers = np.zeros((3, len(places)), dtype=np.int64)
        numbers[1:] = [position for _, position in places], [cache.spare_block * cache.block_size] * len(places)
        return cls(numbers=numbers, tables=tables)

    @property
    def key_counts(self) -> np.ndarray:
        """How many keys each row sees, its own among them: int64 `[rows]`."""
        return self.numbers[1] + 1

    def __len__(self) -> int:
        return self.numbers.shape[1]

    def take(self, indices: list[int]) -> Self:
        """Some of the rows."""
        return type(self)(numbers=self.numbers[:, indices], tables=self.tables[indices])


@dataclass(frozen=True, kw_only=True)
class DeviceRows:
    """The first rows of the buffers: what a captured pass reads. Rows after those of the batch are padding: they write
    to the spare block and see only what they wrote."""

    token_ids: Tensor
    """int64 `[rows]`, as the next two."""
    positions: Tensor
    slots: Tensor
    tables: Tensor
    """int32 `[rows, blocks]`."""

    def __len__(self) -> int:
        return self.token_ids.size(0)


class RowBuffers:
    """Tensors that stay in place, used again by every pass."""

    def __init__(
        self,
        row_count: int,
        width: int,
        cache: PagedCache,
        copy: Copy = copy_by_torch,
        on_device: Tensor | None = None,
    ):
        """For at most `row_count` rows, and sequences of `width` blocks. `on_device` as in `Staging`."""
        self.width = width
        """Blocks of the longest sequence."""
        self.copy = copy
        """How work reads what the host has written."""
        self.spare_slot = cache.spare_block * cache.block_size
        self._spare = cache.spare_block
        self._number_count = 4 * row_count
        self._staging = Staging(self._number_count + -(-row_count * width // 2), cache.device, copy, on_device)
        self._row_count, self._cache = row_count, cache
        numbers, tables = self._staging.on_device.split([self._number_count, -(-row_count * width // 2)])
        self._numbers = numbers.view(4, row_count)
        self._tables = tables.view(torch.int32)[: row_count * width].view(row_count, width)

    def beside(self) -> "RowBuffers":
        """The same tensors of the device, filled from other memory of the host: to write there waits for no pass."""
        return RowBuffers(self._row_count, self.width, self._cache, self.copy, self._staging.on_device)

    def run(self, work: Callable[[], Tensor], rows: HostRows, row_count: int, wanted: Sequence[int] = ()) -> Tensor:
        """What `work`, which loads them, makes of the rows and of padding up to `row_count`; which rows are `wanted` of
        what is computed stays in the buffers."""
        assert rows.tables.shape[1] == self.width and len(wanted) <= row_count
        filled = self._staging.writable()
        count, numbers = len(rows), filled[: self._number_count].reshape(4, -1)
        numbers[:3, :count] = rows.numbers
        numbers[:2, count:row_count] = 0
        numbers[2, count:row_count] = self.spare_slot
        numbers[3, : len(wanted)] = wanted
        tables = filled[self._number_count :].view(np.int32)
        tables[: rows.tables.size] = rows.tables.ravel()
        tables[rows.tables.size : row_count * self.width] = self._spare
        return self._staging.run(work)

    def load(self, row_count: int) -> DeviceRows:
        """The first rows, as the host wrote them. On the device alone."""
        self._staging.load(self._number_count + -(-row_count * self.width // 2))
        return self.first(row_count)

    def wanted(self, count: int) -> Tensor:
        """The first of the rows that were named for the last pass, int64 `[count]`."""
        return self._numbers[3, :count]

    def clear(self, row_count: int) -> None:
        """Makes the first rows padding, here and on the device."""
        none = HostRows(numbers=np.zeros((3, 0), dtype=np.int64), tables=np.zeros((0, self.width), dtype=np.int32))
        self.run(lambda: self.load(row_count).token_ids, none, row_count)

    def first(self, row_count: int) -> DeviceRows:
        """The first rows, in place."""
        token_ids, positions, slots = self._numbers[:3, :row_count]
        return DeviceRows(token_ids=token_ids, positions=positions, slots=slots, tables=self._tables[:row_count])
