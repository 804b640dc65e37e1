"""Attention of single rows over the blocks of a paged cache, without a shape that depends on lengths.

Each row is a query by itself, over the keys up to its own position, which its pass has stored before. So rows of
proposals, prompts and padding are all alike. A row's keys are read again for each row of its sequence, which is little
beside the weights as long as few rows share long contexts.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.caches.attention import Variant
from specpair.models.captured_rows import DeviceRows


class RowAttention(Protocol):
    """The attention of all layers of one pass, prepared by `RowAttentionKind.over`."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        """query `[rows, heads, size]`, keys and values `[slots, key heads, size]` of the whole cache; returns
        `[rows, heads, size]`."""
        ...


class RowAttentionKind(Protocol):
    """A way to attend."""

    description: str
    is_sized: bool
    """Whether its work depends on the number of keys that it is prepared for."""

    def over(self, rows: DeviceRows, key_count: int) -> RowAttention:
        """Prepared once a pass, for rows that see at most `key_count` keys, on the device alone."""
        ...


class Gathering:
    """Copies the keys and values that a row sees, up to a number that is the same for all rows, and masks the rest."""

    description = "attention over gathered keys"
    is_sized = True

    def __init__(self, block_size: int):
        self._block_size = block_size

    def over(self, rows: DeviceRows, key_count: int) -> RowAttention:
        device = rows.tables.device
        places = torch.arange(key_count, device=device)
        blocks = rows.tables.index_select(1, places // self._block_size)
        seen = places <= rows.positions[:, None]
        # What a row does not see may never have been written: it reads its own slot instead.
        slots = torch.where(seen, blocks * self._block_size + places % self._block_size, rows.slots[:, None])
        masks: dict[int | None, Tensor] = {None: seen}

        def attend(query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
            window = variant.sliding_window
            if window is not None and window not in masks:
                masks[window] = seen & (places > rows.positions[:, None] - window)
            count, heads, size = query.shape
            held = [part.index_select(0, slots.flatten()).unflatten(0, slots.shape) for part in (keys, values)]
            grouped = query.view(count, keys.size(1), heads // keys.size(1), size)
            output = F.scaled_dot_product_attention(
                grouped,
                held[0].transpose(1, 2),
                held[1].transpose(1, 2),
                masks[window][:, None, None],
                scale=variant.scaling,
            )
            return output.reshape(query.shape)

        return attend


class PagedKernel:
    """The kernel over block tables, for any length."""

    description = "attention by a kernel over block tables"
    is_sized = False

    def __init__(self, block_size: int):
        self._block_size = block_size

    def over(self, rows: DeviceRows, key_count: int) -> RowAttention:
        from specpair.kernels.attention_kernel import attend as attend_to_blocks  # imports triton

        def attend(query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
            return attend_to_blocks(
                query,
                keys,
                values,
                rows.tables,
                rows.positions,
                block_size=self._block_size,
                scale=variant.scaling,
                window=variant.sliding_window,
            )

        return attend
