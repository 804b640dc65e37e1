"""Scaled dot-product attention of one segment."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What one attention layer asks for beyond plain causal attention."""

    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, variant: Variant) -> Tensor:
    """Attention with grouped heads: `[heads, count, value size]`.

    query `[heads, count, size]`, keys and values `[key heads, end, size]`, mask `[groups * count, end]`, where a group
    is the query heads that share a key head. They become rows of one product, so keys are never copied.
    """
    heads, count, size = query.shape
    rows = query.reshape(keys.size(0), heads // keys.size(0) * count, size)
    if variant.softcap is None:
        output = F.scaled_dot_product_attention(rows[None], keys[None], values[None], mask, scale=variant.scaling)[0]
    else:
        scores = torch.tanh(rows @ keys.mT * (variant.scaling / variant.softcap)) * variant.softcap
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        output = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
    return output.reshape(heads, count, values.size(2))
