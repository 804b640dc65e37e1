"""The Llama family with few, large operators: the same logits as transformers' modules, with less overhead.

In transformers, a forward pass of a small model is mostly Python and small operators. Here query, key and value are one
product, gate and up another; the rotary embedding is one complex multiplication in place; and weights are packed. For
this, the two halves of each head, which are rotated together, are interleaved. Queries and keys are interleaved alike,
so their products stay the same. Norm weights include the powers of two by which packed weights are scaled.

A bf16 model computes products and attention in bf16. Residual, norms and logits are float32: that costs nothing, and
logits rounded to eight bits would have ties.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from specpair.caches.attention import Variant
from specpair.caches.plan import CachePlan
from specpair.models.batch import PassOutput
from specpair.models.model_facts import ModelFacts
from specpair.models.output_tokens import output_tokens_of
from specpair.models.packed_linear import PackedLinear
from specpair.models.weight_format import FORMATS


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One decoder layer, packed."""

    attention_norm: Tensor
    query_key_value: PackedLinear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: PackedLinear
    mlp_norm: Tensor
    gate_up: PackedLinear
    down: PackedLinear
    variant: Variant


class FusedLlama:
    """A packed copy of a model; it does not keep `model`. `specpair.models.fusible` says which models it supports."""

    def __init__(self, model: PreTrainedModel, facts: ModelFacts):
        inner: Any = model.model
        config: Any = model.config
        sizes = (config.hidden_size, inner.layers[0].self_attn.head_dim)
        self._eps_roots = {size: torch.tensor(math.sqrt(size * config.rms_norm_eps)) for size in sizes}
        self._heads: int = config.num_attention_heads
        self._key_heads: int = config.num_key_value_heads
        self._head_size: int = inner.layers[0].self_attn.head_dim
        self._dtype = model.dtype
        self._format = FORMATS[facts.packing]
        self._embedding: Tensor = inner.embed_tokens.weight.detach()
        self._rotation = rotation_table(inner, facts.max_model_len)
        self._layers = [self._pack_layer(layer, facts.variants[i]) for i, layer in enumerate(inner.layers)]
        head: Any = model.lm_head
        bias = None if head.bias is None else head.bias.detach().float()
        self._head = self._format.head.pack(head.weight.detach().float(), bias)
        self._output_tokens = output_tokens_of(head)
        self._norm = scaled_norm(inner.norm, self._head.scale)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        rows: Sequence[int],
        plan: CachePlan,
        feature_layers: Sequence[int] = (),
        feature_rows: Sequence[int] | None = None,
    ) -> PassOutput:
        """Logits of the tokens at the indices `rows`, features of those at `feature_rows`, by default the same;
        token_ids and positions are `[tokens]`."""
        told = rows if feature_rows is None else feature_rows
        residual = self._embedding.index_select(0, token_ids).float()
        rotation = self._rotation.index_select(0, positions)[:, None]
        features: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            attended = self._attend(index, layer, residual, rotation, plan)
            residual.add_(layer.output(attended), alpha=layer.output.scale)
            gated = self._gate(layer, residual)
            residual.add_(layer.down(gated), alpha=layer.down.scale)
            if index in feature_layers:
                features[index] = residual[told]
        if len(rows) != len(residual):
            residual = residual[rows]
        logits = self._head(self._normalise(residual, self._norm))
        if self._output_tokens is not None:
            logits = self._output_tokens(logits)
        return PassOutput(logits, torch.stack([features[layer] for layer in feature_layers]) if features else None)

    def _attend(self, index: int, layer: Layer, residual: Tensor, rotation: Tensor, plan: CachePlan) -> Tensor:
        """The attention output `[tokens, heads * size]`, before the output projection."""
        count = len(residual)
        normalised = self._normalise(residual, layer.attention_norm).to(self._dtype)
        projected = layer.query_key_value(normalised).float()
        by_head = projected.view(count, -1, self._head_size)
        turned = self._heads + self._key_heads
        if layer.query_norm is not None and layer.key_norm is not None:
            by_head[:, : self._heads] = self._normalise(by_head[:, : self._heads], layer.query_norm)
            by_head[:, self._heads : turned] = self._normalise(by_head[:, self._heads : turned], layer.key_norm)
        pairs = by_head[:, :turned].view(count, turned, self._head_size // 2, 2)
        torch.view_as_complex(pairs).mul_(rotation)
        query, key, value = by_head.transpose(0, 1).split([self._heads, self._key_heads, self._key_heads])
        query, key, value = (part.to(self._dtype) for part in (query, key, value))
        output = plan.attend(index, query, key, value, layer.variant)
        return output.transpose(0, 1).reshape(count, -1)

    def _gate(self, layer: Layer, residual: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._normalise(residual, layer.mlp_norm).to(self._dtype)).chunk(2, dim=1)
        return F.silu(gate).mul_(up)

    def _normalise(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm over the last dimension, with four operators where `rms_norm` has seven.

        sqrt(mean + eps) is hypot(|x|, sqrt(size * eps)) / sqrt(size); the weights include the factor sqrt(size).
        """
        root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(root.hypot_(self._eps_roots[x.size(-1)])).mul_(weight)

    def _pack_layer(self, layer: Any, variant: Variant) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        pack = self._format.layers.pack
        query_key_value = pack(
            torch.cat([self._interleave(attention.q_proj.weight), self._interleave(attention.k_proj.weight),
                       attention.v_proj.weight.detach()]),
            self._joined_bias(attention),
        )  # fmt: skip
        gate_up = pack(torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()]), None)
        return Layer(
            attention_norm=scaled_norm(layer.input_layernorm, query_key_value.scale),
            query_key_value=query_key_value,
            query_norm=self._head_norm(attention, "q_norm"),
            key_norm=self._head_norm(attention, "k_norm"),
            output=pack(attention.o_proj.weight.detach(), None),
            mlp_norm=scaled_norm(layer.post_attention_layernorm, gate_up.scale),
            gate_up=gate_up,
            down=pack(mlp.down_proj.weight.detach(), None),
            variant=variant,
        )

    def _joined_bias(self, attention: Any) -> Tensor | None:
        if attention.q_proj.bias is None:
            return None
        biases = [self._interleave(attention.q_proj.bias), self._interleave(attention.k_proj.bias)]
        return torch.cat([*biases, attention.v_proj.bias.detach()])

    def _head_norm(self, attention: Any, name: str) -> Tensor | None:
        norm = getattr(attention, name, None)
        return None if norm is None else self._interleave(scaled_norm(norm, 1.0))

    def _interleave(self, weight: Tensor) -> Tensor:
        """Moves row i of each head to 2 i, and row i + size / 2 to 2 i + 1."""
        halves = weight.detach().view(-1, 2, self._head_size // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)


def scaled_norm(norm: Any, scale: float) -> Tensor:
    """A norm's weight in the form that `FusedLlama` uses, times `scale`."""
    weight: Tensor = norm.weight.detach().float()
    return weight * (math.sqrt(weight.numel()) * scale)


def rotation_table(inner: Any, max_model_len: int) -> Tensor:
    """`[positions, size / 2]` complex: the factors by which the rotary embedding multiplies each pair."""
    positions = torch.arange(max_model_len)[None]
    cosine, sine = inner.rotary_emb(torch.empty(0), positions)
    half = cosine.size(-1) // 2
    return torch.complex(cosine[0, :, :half].contiguous(), sine[0, :, :half].contiguous())
