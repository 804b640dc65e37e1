"""Masks rows of logits: tokens that may not come get -inf, before any other option."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def masked_if_possible(rows: Tensor, masks: Sequence[bytes | None]) -> Tensor:
    """A copy of rows `[R, V]` with the masks applied. A row of which a mask leaves nothing stays as it is: a draft's
    own vocabulary may have none of the tokens that may come, and whatever it proposes instead is rejected."""
    masked = rows.clone()
    mask_rows(masked, masks)
    is_empty = masked.amax(-1, keepdim=True) == -torch.inf
    return torch.where(is_empty, rows, masked)


def mask_rows(rows: Tensor, masks: Sequence[bytes | None]) -> None:
    """Masks rows `[R, V]` in place: bit i % 8 of byte i // 8 of a row's mask is set if token i may come. Tokens beyond
    the mask may not come. A row whose mask is None stays as it is."""
    places = [row for row, mask in enumerate(masks) if mask is not None]
    if not places:
        return
    packed = np.frombuffer(b"".join(mask for mask in masks if mask is not None), dtype=np.uint8)
    allowed = np.zeros((len(places), rows.shape[1]), dtype=np.bool_)
    bits = np.unpackbits(packed.reshape(len(places), -1), axis=1, bitorder="little")
    width = min(rows.shape[1], bits.shape[1])
    allowed[:, :width] = bits[:, :width]
    forbidden = torch.from_numpy(~allowed).to(rows.device)
    if len(places) == len(rows):
        rows.masked_fill_(forbidden, -torch.inf)
    else:
        rows[places] = rows[places].masked_fill(forbidden, -torch.inf)
