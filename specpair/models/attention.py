"""Attention over our own caches, for every transformers model that goes through its attention interface.

A forward pass feeds one packed row of tokens, `[1, tokens]`, in segments of different sequences. The
function below is registered under the name `specpair`; the model calls it once per layer with the
projections of all segments and the ForwardContext that the runner passed along as a keyword.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from specpair.caches.cache import CachePlan, LayerShape
from specpair.caches.holding import Segment
from specpair.errors import ModelRefusedError

NAME = "specpair"
# Keywords that models pass along and that change nothing here.
HARMLESS = {
    "position_ids", "use_cache", "output_attentions", "output_hidden_states", "is_causal", "position_embeddings",
    "cache_position", "return_dict", "logits_to_keep", "layer_type", "token_type_ids", "output_router_logits",
}  # fmt: skip


class ForwardContext(Protocol):
    """What a forward pass carries to every attention layer."""

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: "Variant") -> Tensor:
        """`[heads, tokens, size]` each; returns `[heads, tokens, value size]`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What one attention layer asks for beyond plain causal attention."""

    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None


@dataclass
class CachedAttention:
    """The ForwardContext of a real forward pass: writes to the caches, then attends segment by segment."""

    plan: CachePlan
    segments: Sequence[Segment]
    device: torch.device
    _masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        self.plan.write(layer, keys, values)
        if len(self.segments) == 1:
            mask = self._mask(0, variant.sliding_window)
            return attend(query, *self.plan.read(layer, 0), mask, variant)
        outputs = []
        offset = 0
        for index, segment in enumerate(self.segments):
            part = query[:, offset : offset + segment.token_count]
            held_keys, held_values = self.plan.read(layer, index)
            mask = self._mask(index, variant.sliding_window)
            outputs.append(attend(part, held_keys, held_values, mask, variant))
            offset += segment.token_count
        return torch.cat(outputs, dim=1)

    def _mask(self, index: int, window: int | None) -> Tensor | None:
        """`[count, end]`, True where a token may look; None where it may look everywhere."""
        key = (index, window)
        if key not in self._masks:
            self._masks[key] = causal_mask(self.segments[index], window, self.device)
        return self._masks[key]


@dataclass
class LayerRecorder:
    """A ForwardContext that notes what each layer caches and asks for; a model's first forward pass."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)
    variants: dict[int, Variant] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        if layer in self.shapes:
            raise ModelRefusedError(f"attention layer {layer} runs more than once in a forward pass")
        self.shapes[layer] = LayerShape(keys.size(0), keys.size(2), values.size(2))
        self.variants[layer] = variant
        whole = causal_mask(Segment(None, 0, query.size(1)), variant.sliding_window, query.device)  # pyright: ignore[reportArgumentType]
        return attend(query, keys, values, whole, variant)


def causal_mask(segment: Segment, window: int | None, device: torch.device) -> Tensor | None:
    """Which of the `end` positions each of the `count` tokens sees: itself and those before, within the window."""
    if segment.token_count == 1 and (window is None or segment.end <= window):
        return None
    rows = torch.arange(segment.start, segment.end, device=device)[:, None]
    columns = torch.arange(segment.end, device=device)[None, :]
    mask = columns <= rows
    return mask if window is None else mask & (columns > rows - window)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, variant: Variant) -> Tensor:
    """Scaled dot-product attention of one segment with grouped heads.

    query `[heads, count, size]`, keys and values `[key heads, end, size]`, mask `[count, end]`.
    The query heads that share a key head become rows of one product, so keys are never copied.
    """
    heads, count, _ = query.shape
    groups = heads // keys.size(0)
    rows = query.reshape(keys.size(0), groups * count, query.size(2))
    if mask is not None and groups > 1:
        mask = mask.repeat(groups, 1)
    if variant.softcap is None:
        output = F.scaled_dot_product_attention(rows[None], keys[None], values[None], mask, scale=variant.scaling)[0]
    else:
        scores = torch.tanh(rows @ keys.mT * (variant.scaling / variant.softcap)) * variant.softcap
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        output = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
    return output.reshape(heads, count, values.size(2))


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
    forward_context: ForwardContext | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: `[1, heads, tokens, size]` in, `[1, tokens, heads, size]` out."""
    unknown = sorted(name for name, given in others.items() if given is not None and name not in HARMLESS)
    if unknown:
        raise ModelRefusedError(f"{type(module).__name__} asks for {', '.join(unknown)}, which is not served")
    if forward_context is None:
        raise ModelRefusedError(f"{type(module).__name__} does not pass keywords on to its attention")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise ModelRefusedError(f"{type(module).__name__} has no layer_idx")
    variant = Variant(
        scaling=query.size(-1) ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
    )
    output = forward_context.attend(layer, query[0], key[0], value[0], variant)
    return output.transpose(0, 1)[None].contiguous(), None


def register() -> None:
    """Makes the attention known to transformers; models build no mask for it."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, lambda *args, **keywords: None)
