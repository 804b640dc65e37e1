"""The Llama family over rows in static buffers, with few operators and nothing that depends on the host.

Query, key and value are one product, gate and up another, over weights that are joined in place: the model's own
modules then hold views of them, so that the model still runs by itself and nothing is held twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.caches.attention import Variant
from specpair.caches.paged_cache import PagedCache
from specpair.models.captured_attention import RowAttention
from specpair.models.captured_rows import DeviceRows
from specpair.models.model_facts import ModelFacts


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One decoder layer."""

    attention_norm: nn.Module
    query_key_value: Tensor
    bias: Tensor | None
    query_norm: nn.Module | None
    key_norm: nn.Module | None
    output: Tensor
    mlp_norm: nn.Module
    gate_up: Tensor
    down: Tensor
    variant: Variant


class CapturedLlama:
    """`specpair.models.fusible.is_llama_shaped` must be true of the model."""

    def __init__(self, model: PreTrainedModel, facts: ModelFacts):
        inner: Any = model.model
        config: Any = model.config
        self._eps: float = config.rms_norm_eps
        self._heads: int = config.num_attention_heads
        self._key_heads: int = config.num_key_value_heads
        self._head_size: int = inner.layers[0].self_attn.head_dim
        self._embedding: Tensor = inner.embed_tokens.weight.detach()
        self._norm: nn.Module = inner.norm
        self._head: Any = model.lm_head
        self._cosine, self._sine = rotation_tables(inner, facts.max_model_len, model.dtype)
        self._layers = [self._join(layer, facts.variants[index]) for index, layer in enumerate(inner.layers)]

    def forward(
        self, rows: DeviceRows, attend: RowAttention, cache: PagedCache, feature_layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits `[rows, vocabulary]` float32 of all rows, and the hidden states `[rows, hidden]` float32 after each of
        `feature_layers`."""
        residual = self._embedding.index_select(0, rows.token_ids)
        cosine = self._cosine.index_select(0, rows.positions)[:, None]
        sine = self._sine.index_select(0, rows.positions)[:, None]
        features: list[Tensor] = []
        for index, layer in enumerate(self._layers):
            query, key, value = self._project(layer, residual, cosine, sine)
            keys, values = cache.layer(index)
            keys.index_copy_(0, rows.slots, key)
            values.index_copy_(0, rows.slots, value)
            attended = attend(query, keys, values, layer.variant).flatten(1)
            residual = torch.addmm(residual, attended, layer.output.T)
            gate, up = F.linear(self._normalise(residual, layer.mlp_norm), layer.gate_up).chunk(2, dim=1)
            residual = torch.addmm(residual, F.silu(gate).mul_(up), layer.down.T)
            if index in feature_layers:
                features.append(residual.float())
        return self._head(self._normalise(residual, self._norm)).float(), features

    def _project(self, layer: Layer, residual: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, `[rows, heads, size]` each."""
        normalised = self._normalise(residual, layer.attention_norm)
        projected = F.linear(normalised, layer.query_key_value, layer.bias)
        by_head = projected.view(len(residual), -1, self._head_size)
        turned, value = by_head.split([self._heads + self._key_heads, self._key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = turned.split([self._heads, self._key_heads], dim=1)
            turned = torch.cat([self._normalise(query, layer.query_norm), self._normalise(key, layer.key_norm)], dim=1)
        turned = torch.addcmul(turned * cosine, turned.roll(self._head_size // 2, -1), sine)
        query, key = turned.split([self._heads, self._key_heads], dim=1)
        return query.contiguous(), key, value

    def _normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        weight: Any = norm.weight
        return F.rms_norm(x, weight.shape, weight, self._eps)

    def _join(self, layer: Any, variant: Variant) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        biases = [projection.bias for projection in projections]
        return Layer(
            attention_norm=layer.input_layernorm,
            query_key_value=joined([projection.weight for projection in projections]),
            bias=None if biases[0] is None else joined(biases),
            query_norm=getattr(attention, "q_norm", None),
            key_norm=getattr(attention, "k_norm", None),
            output=attention.o_proj.weight.detach(),
            mlp_norm=layer.post_attention_layernorm,
            gate_up=joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
            down=mlp.down_proj.weight.detach(),
            variant=variant,
        )


def joined(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The parameters, one after the other, in new memory of which they are views from then on."""
    whole = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, whole.split([len(parameter) for parameter in parameters]), strict=True):
        parameter.data = part
    return whole


def rotation_tables(inner: Any, max_model_len: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[positions, size]` of the rotary embedding; the sine of the first half is negated, as the
    second half, which comes to its place by a roll, is subtracted there."""
    device = inner.embed_tokens.weight.device
    cosine, sine = inner.rotary_emb(
        torch.empty(0, dtype=dtype, device=device), torch.arange(max_model_len, device=device)[None]
    )
    low, high = sine[0].chunk(2, dim=-1)
    return cosine[0].contiguous(), torch.cat([-low, high], dim=-1)
