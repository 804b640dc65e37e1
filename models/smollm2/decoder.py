"""Fast decoding of many sequences at once: one row for each slot, every slot at its own position.

Written for two CPU cores: products in bf16 where the processor has them, with weights packed once, attention as
batched products over a contiguous cache, the residual stream in float32. Prompts go through it token by token, so no
second kind of pass is needed.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig

TOP = 64
"""Tokens kept for each position."""
DTYPE = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
"""Of products and cache. Without units for it, bf16 takes several times as long as float32."""


class Product:
    """`x @ weight.T` in `DTYPE`, with the weight packed for few rows."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(DTYPE).contiguous(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")


class Layer:
    """One decoder layer of the target, with its cache `[slots * heads, length, 64]`."""

    def __init__(self, weights: dict[str, Tensor], prefix: str, config: LlamaConfig, slots: int, length: int) -> None:
        def part(name: str) -> Tensor:
            return weights[f"{prefix}{name}.weight"]

        size = config.hidden_size // config.num_attention_heads
        scaled = part("self_attn.q_proj") * size**-0.5  # a power of two for heads of 64: exact
        self.qkv = Product(torch.cat([scaled, part("self_attn.k_proj"), part("self_attn.v_proj")]), slots)
        self.output = Product(part("self_attn.o_proj"), slots)
        self.gate_up = Product(torch.cat([part("mlp.gate_proj"), part("mlp.up_proj")]), slots)
        self.down = Product(part("mlp.down_proj"), slots)
        self.norms = [part("input_layernorm").float(), part("post_attention_layernorm").float()]
        self.groups, self.size = config.num_attention_heads, size
        self.heads: int = config.num_key_value_heads or self.groups
        self.eps = config.rms_norm_eps
        shape = (slots * self.heads, length, size)
        self.keys = torch.zeros(shape, dtype=DTYPE)
        self.values = torch.zeros(shape, dtype=DTYPE)

    def __call__(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, where: tuple[Tensor, Tensor]) -> Tensor:
        """The residual stream `x` [slots, width] after this layer; `mask` [slots * heads, 1, length].

        The products read the cache in full: a part of it would be copied first, which takes longer.
        """
        slots = len(x)
        normed = F.rms_norm(x, x.shape[1:], self.norms[0], self.eps).to(DTYPE)
        qkv = self.qkv(normed).view(slots, -1, self.size)
        turned = rotate(qkv[:, : self.groups + self.heads], *rotary)
        rows, positions = where
        self.keys[rows, positions] = turned[:, self.groups :].reshape(-1, self.size)
        self.values[rows, positions] = qkv[:, self.groups + self.heads :].reshape(-1, self.size)
        queries = turned[:, : self.groups].reshape(slots * self.heads, -1, self.size)
        weights = torch.baddbmm(mask, queries, self.keys.mT).softmax(-1)
        x = x + self.output(torch.bmm(weights, self.values).view(slots, -1))
        normed = F.rms_norm(x, x.shape[1:], self.norms[1], self.eps).to(DTYPE)
        gate, up = self.gate_up(normed).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary position embedding of `x` [slots, heads, size]."""
    half = x.shape[-1] // 2
    return x * cosines + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sines


class Decoder:
    """The target over `slots` sequences of at most `length` tokens."""

    def __init__(
        self, config: LlamaConfig, weights: dict[str, Tensor], slots: int, length: int, features: Sequence[int] = ()
    ) -> None:
        """`features`: layers whose inputs `step` keeps; the number of layers stands for what leaves the last one."""
        self.numbers, self.features = list(features), torch.empty(0, dtype=torch.bfloat16)
        self.embeddings = weights["model.embed_tokens.weight"]
        self.layers = [
            Layer(weights, f"model.layers.{i}.", config, slots, length) for i in range(config.num_hidden_layers)
        ]
        self.norm, self.eps = weights["model.norm.weight"].float(), config.rms_norm_eps
        self.head = Product(self.embeddings, slots)
        size = config.hidden_size // config.num_attention_heads
        theta = float(cast(dict, config.rope_parameters)["rope_theta"])
        frequencies = theta ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(length).float(), torch.cat([frequencies, frequencies]))
        self.cosines, self.sines = angles.cos().to(DTYPE), angles.sin().to(DTYPE)
        self.rows = torch.arange(slots * self.layers[0].heads)
        self.columns = torch.arange(length)

    def write_prefix(self, slot: int, caches: list[tuple[Tensor, Tensor]]) -> None:
        """Gives `slot` its first positions: keys and values `[heads, positions, 64]` of each layer."""
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            rows = slice(slot * layer.heads, (slot + 1) * layer.heads)
            layer.keys[rows, : keys.shape[1]] = keys
            layer.values[rows, : values.shape[1]] = values

    @torch.inference_mode()
    def step(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """One token for each slot `[slots]`; returns the last hidden states, float32 `[slots, width]`.

        `self.features` is then bf16 `[slots, layers, width]`.
        """
        repeated = positions.repeat_interleave(self.layers[0].heads)
        ahead = self.columns > repeated[:, None]
        mask = torch.zeros(ahead.shape, dtype=DTYPE).masked_fill_(ahead, float("-inf"))[:, None]
        rotary = (self.cosines[positions][:, None], self.sines[positions][:, None])
        x = F.embedding(token_ids, self.embeddings).float()
        inputs = [x]
        for layer in self.layers:
            x = layer(x, rotary, mask, (self.rows, repeated))
            inputs.append(x)
        if self.numbers:
            self.features = torch.stack([inputs[number] for number in self.numbers], dim=1).bfloat16()
        return F.rms_norm(x, x.shape[1:], self.norm, self.eps)

    @torch.inference_mode()
    def top(self, hidden: Tensor, logits: Tensor, most: int = TOP) -> tuple[Tensor, Tensor]:
        """The likeliest tokens `[rows, most]` and their log-probabilities in float32, the likeliest first.

        bf16 logits come in steps of 1/8 and tie often, so those of the likeliest tokens are computed again in float32.
        """
        coarse, token_ids = logits.topk(most)
        fine = torch.einsum("sd,std->st", hidden, self.embeddings[token_ids].float())
        highest = coarse[:, :1].float()
        total = (logits - coarse[:, :1]).exp().float().sum(-1, keepdim=True)
        total = total + ((fine - highest).exp() - (coarse.float() - highest).exp()).sum(-1, keepdim=True)
        log_probabilities, order = (fine - highest - total.log()).sort(dim=-1, descending=True, stable=True)
        return token_ids.gather(1, order), log_probabilities
