"""Attention through a cache plan, for every model that uses transformers' attention interface.

A forward pass feeds one packed row of tokens, `[1, tokens]`, with segments of different sequences. The function below
is registered under the name `specpair`. The model calls it once per layer with the projections of all segments and the
CachePlan that the runner passed as a keyword.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from specpair.caches.attention import Variant
from specpair.caches.plan import CachePlan
from specpair.errors import ModelRefusedError

NAME = "specpair"
# Keywords that models pass and that have no effect here.
HARMLESS = {
    "position_ids", "use_cache", "output_attentions", "output_hidden_states", "is_causal", "position_embeddings",
    "cache_position", "return_dict", "logits_to_keep", "layer_type", "token_type_ids", "output_router_logits",
}  # fmt: skip


def attention_function(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    cache_plan: CachePlan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Called by transformers in each layer: takes `[1, heads, tokens, size]`, returns `[1, tokens, heads, size]`."""
    unknown = sorted(name for name, given in others.items() if given is not None and name not in HARMLESS)
    if unknown:
        raise ModelRefusedError(f"{type(module).__name__} requires {', '.join(unknown)}, which is not supported")
    if cache_plan is None:
        raise ModelRefusedError(f"{type(module).__name__} does not pass keywords to its attention")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise ModelRefusedError(f"{type(module).__name__} has no layer_idx")
    variant = Variant(
        scaling=query.size(-1) ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
    )
    output = cache_plan.attend(layer, query[0], key[0], value[0], variant)
    return output.transpose(0, 1)[None].contiguous(), None


def register() -> None:
    """Registers the attention with transformers; models build no mask for it."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, lambda *args, **keywords: None)
