"""The Llama family over rows in static buffers, with few operators and nothing that depends on the host.

Query, key and value are one product, gate and up another, over weights that are joined in place: the model's own
modules then hold views of them, so that the model still runs by itself and nothing is held twice.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.caches.attention import Variant
from specpair.caches.paged_cache import PagedCache
from specpair.models.captured_attention import RowAttention
from specpair.models.captured_operations import Layer, RowOperationsKind, Shared, weight_of
from specpair.models.captured_rows import DeviceRows
from specpair.models.model_facts import ModelFacts
from specpair.models.output_tokens import output_tokens_of


class CapturedLlama:
    """`specpair.models.fusible.is_llama_shaped` must be true of the model."""

    def __init__(self, model: PreTrainedModel, facts: ModelFacts, operations: RowOperationsKind):
        inner: Any = model.model
        config: Any = model.config
        cosines, sines = rotation_tables(inner, facts.max_model_len, model.dtype)
        head: Any = model.lm_head
        self._operations = operations
        self._output_tokens = output_tokens_of(head)
        self.vocab_size: int = config.vocab_size if self._output_tokens else head.weight.size(0)
        """Width of the logits."""
        self._embedding = weight_of(inner.embed_tokens)
        self._shared = Shared(
            epsilon=config.rms_norm_eps,
            cosines=cosines,
            sines=sines,
            head=weight_of(head),
            head_bias=None if head.bias is None else head.bias.detach(),
        )
        norms = [layer.input_layernorm for layer in inner.layers]
        self._norms = [weight_of(norm) for norm in (*norms, inner.norm)]
        """Of what goes into each layer, and into the head."""
        self._layers = [join(layer, facts.variants[index]) for index, layer in enumerate(inner.layers)]

    def forward(
        self, rows: DeviceRows, attend: RowAttention, cache: PagedCache, feature_layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits `[rows, vocabulary]` float32 of all rows, and the hidden states `[rows, hidden]` float32 after each of
        `feature_layers`."""
        operations = self._operations(rows, self._shared)
        hidden = self._embedding.index_select(0, rows.token_ids)  # of torch: kernels that overlap must not come before
        normal = operations.normalise(hidden, self._norms[0])
        features: list[Tensor] = []
        for index, layer in enumerate(self._layers):
            keys, values = cache.layer(index)
            query = operations.project(layer, normal, keys, values)
            hidden, normal = operations.add_attended(layer, hidden, attend(query, keys, values, layer.variant))
            hidden, normal = operations.add_transformed(layer, hidden, normal, self._norms[index + 1])
            if index in feature_layers:
                features.append(hidden.float())
        logits = operations.logits(normal)
        return logits if self._output_tokens is None else self._output_tokens(logits), features


def join(layer: Any, variant: Variant) -> Layer:
    """The weights of a layer of transformers, joined."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biases = [projection.bias for projection in projections]
    has_head_norms = getattr(attention, "q_norm", None) is not None
    return Layer(
        query_key_value=joined([projection.weight for projection in projections]),
        bias=None if biases[0] is None else joined(biases),
        head_norms=(weight_of(attention.q_norm), weight_of(attention.k_norm)) if has_head_norms else None,
        output=weight_of(attention.o_proj),
        mlp_norm=weight_of(layer.post_attention_layernorm),
        gate_up=joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=weight_of(mlp.down_proj),
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
