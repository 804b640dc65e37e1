"""An EAGLE-3 head: one decoder layer that drafts from the target's features (arXiv 2503.01840).

What it has for the token at a position is a pair: the target's features of the token before, and the token's embedding.
Its keys and values come from the pair alone, so they are kept in the target's cache, at the token's position, by the
pass that feeds the token; and so are the joined features of each token, which are half of the next pair. They are
rolled back, forked and found again with everything else that the cache holds.

A draft begins with the pair of the last committed token; each further step has the head's own hidden state in place of
the features. Keys and values of these steps are kept beside the cache: the target's next pass writes better ones.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.caches.attention import Variant, attend
from specpair.models.eagle_checkpoint import LAYER, EagleWeights
from specpair.models.head_product import head_product


class EagleHead:
    """The head's arithmetic, without any state of sequences."""

    def __init__(self, weights: EagleWeights, rotation: tuple[Tensor, Tensor], vocab_size: int):
        """`rotation`: cosine and sine `[positions, size / 2]`."""
        settings = weights.settings
        self.settings = settings
        self.feature_layers = weights.feature_layers
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        self.outputs = weights.outputs(vocab_size)
        self._embedding = weights.embedding
        self._norms = {name: tensor.float() for name, tensor in weights.tensors.items() if tensor.ndim == 1}
        projections = [weights[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkv"]
        self._fc = head_product(weights["fc.weight"])
        self._query_key_value = head_product(torch.cat(projections))
        self._output = head_product(weights[f"{LAYER}self_attn.o_proj.weight"])
        self._gate_up = head_product(torch.cat([weights[f"{LAYER}mlp.{name}_proj.weight"] for name in ("gate", "up")]))
        self._down = head_product(weights[f"{LAYER}mlp.down_proj.weight"])
        self._head = head_product(weights.output)
        self._cosine, self._sine = rotation
        self.variant = Variant(scaling=settings.head_size**-0.5)

    def join(self, features: Tensor) -> Tensor:
        """`[tokens, width]` from the target's features `[layers, tokens, hidden]`."""
        if self.settings.normalises_each_feature:
            features = torch.stack([self._normed(f"fc_norm.{i}", part) for i, part in enumerate(features)])
        joined = features.transpose(0, 1).flatten(1)
        if self.settings.normalises_features:
            joined = self._normed("input_norm", joined)
        return self._fc(joined)

    def enter(
        self, token_ids: Tensor, hidden: Tensor, positions: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The residual, and queries, keys and values `[heads, tokens, size]`, of pairs `[tokens]`."""
        normed = self._normed(f"{LAYER}hidden_norm", hidden)
        embedded = self._normed(f"{LAYER}input_layernorm", self._embedding.index_select(0, token_ids).float())
        projected = self._query_key_value(torch.cat([embedded, normed], dim=1))
        settings = self.settings
        by_head = projected.view(len(projected), -1, settings.head_size).transpose(0, 1)
        query, key, value = by_head.split([settings.heads, settings.key_heads, settings.key_heads])
        query, key = (self._turned(part, positions).to(self.dtype) for part in (query, key))
        return (normed if settings.normalises_residual else hidden), (query, key, value.to(self.dtype))

    def leave(self, residual: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden states `[tokens, width]` that the next step is given, and the logits `[tokens, outputs]`, from
        the residual and the attention's outcome `[heads, tokens, size]`."""
        residual = residual + self._output(mixed.transpose(0, 1).flatten(1).float())
        gate, up = self._gate_up(self._normed(f"{LAYER}post_attention_layernorm", residual)).chunk(2, dim=1)
        hidden = residual + self._down(F.silu(gate) * up)
        normed = self._normed("norm", hidden)
        return (normed if self.settings.feeds_back_normalised else hidden), self._head(normed)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """`[heads, tokens, size]`: tokens that see these keys and values, all of them without a mask."""
        return attend(query, keys, values, mask, self.variant)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self._norms[f"{name}.weight"], self.settings.eps)

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding of `[heads, tokens, size]`."""
        half = x.size(2) // 2
        cosine, sine = self._cosine.index_select(0, positions), self._sine.index_select(0, positions)
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=2)
