"""Attention of encoder-decoder models that use transformers' attention interface.

The encoder feeds one whole sequence, `[1, tokens]`, in which every token sees all others. The decoder feeds one packed
row with segments of different sequences, and passes a `DecoderPass` as a keyword, which attends to the cache (self
attention) and to what the encoder gave (cross attention). Relative positions, as T5 has them, are a bias on the scores:
the model computes it as if the row were one text, so it is computed again here, for each segment.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from specpair.caches.attention import Masks, Parents, Variant, attend, split_parents, tree_positions
from specpair.caches.holding import Segment
from specpair.caches.plan import CacheAccess
from specpair.errors import ModelRefusedError
from specpair.models.attention import HARMLESS

NAME = "specpair-encoder-decoder"


class CrossAttention(NamedTuple):
    """Keys and values of one layer for the tokens that the encoder read: `[heads, tokens, size]` each."""

    keys: Tensor
    values: Tensor

    @property
    def byte_count(self) -> int:
        return self.keys.nbytes + self.values.nbytes


Encoding = dict[int, CrossAttention]
"""What the decoder attends to, by layer."""


class DecoderAttention(Protocol):
    """How a pass of the decoder attends. All tensors are `[heads, tokens, size]`."""

    def to_itself(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor: ...

    def to_the_encoder(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor: ...


class DecoderPass:
    """A pass over segments of sequences, each with an encoding of its own."""

    def __init__(
        self,
        access: CacheAccess,
        segments: Sequence[Segment],
        parents: Parents | None,
        encodings: Sequence[Encoding],
        device: torch.device,
    ):
        """`parents`, if there are trees, are indices among the tokens of all segments."""
        self._access = access
        self._counts = [segment.token_count for segment in segments]
        self._encodings = encodings
        self._masks = Masks(segments, parents, device)
        split = [None] * len(segments) if parents is None else split_parents(segments, parents)
        self._key_positions = [
            torch.tensor(key_positions(segment, own), device=device)
            for segment, own in zip(segments, split, strict=True)
        ]
        self._biased: dict[int, Tensor] = {}
        self._source: Any = None
        """The module that has the table of the relative positions: the first layer's, unless each has its own."""

    def to_itself(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        layer, variant = module.layer_idx, Variant(scaling=scaling)
        self._access.write(layer, keys, values)
        if getattr(module, "has_relative_attention_bias", False):
            self._source, self._biased = module, {}
        outputs = [
            attend(part, *self._access.read(layer, index), self._mask(index), variant)
            for index, part in enumerate(query.split(self._counts, 1))
        ]
        return torch.cat(outputs, dim=1)

    def to_the_encoder(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        layer, variant = module.layer_idx, Variant(scaling=scaling)
        outputs = [
            attend(part, *encoding[layer], None, variant)
            for part, encoding in zip(query.split(self._counts, 1), self._encodings, strict=True)
        ]
        return torch.cat(outputs, dim=1)

    def _mask(self, index: int) -> Tensor | None:
        """True where a token of the segment attends, or what is added to its scores."""
        mask = self._masks.of(index, None, 1)
        if self._source is None:
            return mask
        if index not in self._biased:
            keys = self._key_positions[index]
            bias = relative_bias(self._source, keys[-self._counts[index] :], keys)
            self._biased[index] = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        return self._biased[index]


class DecoderRecorder:
    """A pass of the decoder over one token, which records what it computes of the encoder's output."""

    def __init__(self) -> None:
        self.keys: dict[int, Tensor] = {}
        """Of the token itself, by layer."""
        self.values: dict[int, Tensor] = {}
        """Of the token itself, by layer."""
        self.encoding: Encoding = {}

    def to_itself(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        self.keys[module.layer_idx], self.values[module.layer_idx] = keys, values
        return values

    def to_the_encoder(self, module: Any, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        self.encoding[module.layer_idx] = CrossAttention(keys.contiguous(), values.contiguous())
        return attend(query, keys, values, None, Variant(scaling=scaling))


def attention_function(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    decoder_pass: DecoderAttention | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Called by transformers in each layer: takes `[1, heads, tokens, size]`, returns `[1, tokens, heads, size]`."""
    unknown = sorted(name for name, given in others.items() if given is not None and name not in HARMLESS)
    if unknown:
        raise ModelRefusedError(f"{type(module).__name__} requires {', '.join(unknown)}, which is not supported")
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    if decoder_pass is None:
        output = F.scaled_dot_product_attention(query, key, value, position_bias, scale=scale)[0]
    else:
        kind = decoder_pass.to_itself if getattr(module, "is_causal", False) else decoder_pass.to_the_encoder
        output = kind(module, query[0], key[0], value[0], scale)
    return output.transpose(0, 1)[None].contiguous(), None


def relative_bias(module: Any, queries: Tensor, keys: Tensor) -> Tensor:
    """`[heads, queries, keys]`: what T5 adds to the scores of tokens at positions `queries` with those at `keys`."""
    buckets = module._relative_position_bucket(
        keys[None, :] - queries[:, None],
        bidirectional=False,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    return module.relative_attention_bias(buckets).permute(2, 0, 1)


def key_positions(segment: Segment, parents: Sequence[int | None] | None) -> list[int]:
    """The position of each token that is in the cache after the pass, in the order in which they are stored."""
    if parents is None:
        return list(range(segment.end))
    return [*range(segment.start), *tree_positions(segment.start, parents)]


def register() -> None:
    """Registers the attention with transformers; models build no mask for it."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, lambda *args, **keywords: None)
