"""An EAGLE-3-shaped head as it is trained: one decoder layer over the target's features (arXiv 2503.01840).

At place t it has the target's features of token t and the embedding of token t + 1, and says what token t + 2 will be.
Further tokens come from its own hidden states: step j at place t has the hidden state of step j - 1 at place t and the
embedding of token t + 1 + j. Its attention sees the places up to t as step 0 wrote them and, at place t only, its own
steps: exactly what is there when it drafts. Names of parameters and fields are those of `vllm-project/speculators`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The shape of a head."""

    width: int
    """Of the target's hidden states."""
    feed_forward: int
    heads: int
    key_heads: int
    head_size: int
    features: tuple[int, ...]
    """Layers of the target whose inputs the head is given."""
    theta: float
    """Of the target's rotary embedding."""
    eps: float


class Attention(nn.Module):
    """Queries, keys and values of twice the width: embedding and hidden state beside each other."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        double, size = 2 * config.width, config.head_size
        self.q_proj = nn.Linear(double, config.heads * size, bias=False)
        self.k_proj = nn.Linear(double, config.key_heads * size, bias=False)
        self.v_proj = nn.Linear(double, config.key_heads * size, bias=False)
        self.o_proj = nn.Linear(config.heads * size, config.width, bias=False)


class FeedForward(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.feed_forward, bias=False)
        self.up_proj = nn.Linear(config.width, config.feed_forward, bias=False)
        self.down_proj = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config), FeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.width, eps=config.eps)
        self.hidden_norm = nn.RMSNorm(config.width, eps=config.eps)
        self.post_attention_layernorm = nn.RMSNorm(config.width, eps=config.eps)


@dataclass(frozen=True, kw_only=True)
class Unrolled:
    """Which places go beyond their first step."""

    places: Tensor
    """Flat indices into `[rows, tokens]`, sorted."""
    order: Tensor
    """int64 `[rows * tokens]`: the index of each place in `places`."""


def unrolled(wanted: Tensor, steps: int, size: int) -> Unrolled:
    """The places from which step j >= 1 says something about a place of `wanted`; `size` places in all."""
    places = torch.unique(torch.cat([wanted - 1 - step for step in range(1, steps)]))
    order = torch.zeros(size, dtype=torch.long)
    order[places] = torch.arange(len(places))
    return Unrolled(places=places, order=order)


class Head(nn.Module):
    """Everything but embeddings `[vocabulary, width]` and output head, which are the target's, is trained."""

    def __init__(self, config: HeadConfig, embeddings: Tensor) -> None:
        super().__init__()
        self.config, self.embeddings = config, embeddings
        self.fc_norm = nn.ModuleList(nn.RMSNorm(config.width, eps=config.eps) for _ in config.features)
        self.fc = nn.Linear(len(config.features) * config.width, config.width, bias=False)
        self.layers = nn.ModuleList([Layer(config)])
        self.norm = nn.RMSNorm(config.width, eps=config.eps)
        size = config.head_size
        self.frequencies = config.theta ** (-torch.arange(0, size, 2).float() / size)

    def trained(self) -> dict[str, Tensor]:
        return dict(self.named_parameters())

    def forward(self, features: Tensor, token_ids: Tensor, wanted: Tensor, steps: int) -> list[Tensor]:
        """Normalised hidden states `[wanted, width]` of each step, for the token after each place of `wanted`.

        `features` [rows, tokens, layers, width]; `token_ids` [rows, tokens]; `wanted`: flat indices of places that
        have more than `steps` places before them in their row.
        """
        rows, length = token_ids.shape
        normed = [norm(features[:, :, i].float()) for i, norm in enumerate(self.fc_norm)]
        states = self.fc(torch.cat(normed, dim=-1)).flatten(0, 1)
        tokens = token_ids.flatten()
        pass_ = Pass(self, rows, length)
        said = pass_.first(states, F.embedding(tokens.roll(-1), self.embeddings))
        results = [self.norm(said)[wanted - 1]]
        if steps == 1:
            return results
        more = unrolled(wanted, steps, rows * length)
        states = said[more.places]
        for step in range(1, steps):
            ahead = (more.places + 1 + step).clamp_max(len(tokens) - 1)
            states = pass_.further(states, F.embedding(tokens[ahead], self.embeddings), more.places, step)
            results.append(self.norm(states)[more.order[wanted - 1 - step]])
        return results


class Pass:
    """One unrolled pass of a head: the keys and values of all steps so far."""

    def __init__(self, head: Head, rows: int, length: int) -> None:
        self.layer: Layer = head.layers[0]  # pyright: ignore[reportAttributeAccessIssue]
        self.config, self.rows, self.length = head.config, rows, length
        angles = torch.outer(torch.arange(length + 16).float(), head.frequencies.repeat(2))
        self.cosines, self.sines = angles.cos(), angles.sin()
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def first(self, states: Tensor, embedded: Tensor) -> Tensor:
        """Step 0 at all places: `states` and `embedded` [rows * length, width]."""
        residual, (queries, keys, values) = self.enter(states, embedded)
        positions = torch.arange(self.length)
        queries, keys = self.turned(self.spread(queries), positions), self.turned(self.spread(keys), positions)
        self.keys.append(keys)
        self.values.append(self.spread(values))
        mixed = F.scaled_dot_product_attention(queries, keys, self.values[0], is_causal=True, enable_gqa=True)
        return self.leave(residual, mixed.transpose(1, 2).flatten(0, 1).flatten(1))

    def further(self, states: Tensor, embedded: Tensor, places: Tensor, step: int) -> Tensor:
        """A later step at some places: `states` and `embedded` [places, width]."""
        residual, parts = self.enter(states, embedded)
        queries, keys, values = (self.spread(part, places) for part in parts)
        positions = torch.arange(self.length) + step
        queries, keys = self.turned(queries, positions), self.turned(keys, positions)
        self.keys.append(keys)
        self.values.append(values)
        mixed = self.attend(queries).transpose(1, 2).flatten(0, 1)
        return self.leave(residual, mixed[places].flatten(1))

    def attend(self, queries: Tensor) -> Tensor:
        """Over step 0 up to the own place, and over the later steps at it: `[rows, heads, length, size]`."""
        groups = self.config.heads // self.config.key_heads
        keys = [part.repeat_interleave(groups, dim=1) for part in self.keys]
        values = [part.repeat_interleave(groups, dim=1) for part in self.values]
        queries = queries * self.config.head_size**-0.5
        later = torch.ones(self.length, self.length, dtype=torch.bool).triu(1)
        scores = [(queries @ keys[0].mT).float().masked_fill(later, -torch.inf)]
        scores += [(queries * part).sum(-1, keepdim=True).float() for part in keys[1:]]
        weights = torch.cat(scores, dim=-1).softmax(-1)
        mixed = weights[..., : self.length].to(queries.dtype) @ values[0]
        for step, part in enumerate(values[1:]):
            mixed = mixed + weights[..., self.length + step, None].to(queries.dtype) * part
        return mixed

    def enter(self, states: Tensor, embedded: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The residual, which is the normalised hidden state, and queries, keys and values `[n, heads * size]`."""
        residual = self.layer.hidden_norm(states)
        joined = torch.cat([self.layer.input_layernorm(embedded.float()), residual], dim=-1)
        attention = self.layer.self_attn
        return residual, (attention.q_proj(joined), attention.k_proj(joined), attention.v_proj(joined))

    def leave(self, residual: Tensor, mixed: Tensor) -> Tensor:
        residual = residual + self.layer.self_attn.o_proj(mixed)
        return residual + self.layer.mlp(self.layer.post_attention_layernorm(residual))

    def spread(self, flat: Tensor, places: Tensor | None = None) -> Tensor:
        """`[n, heads * size]` as `[rows, heads, length, size]`, zero where nothing is."""
        if places is not None:
            flat = torch.zeros(self.rows * self.length, flat.shape[1], dtype=flat.dtype).index_copy(0, places, flat)
        return flat.view(self.rows, self.length, -1, self.config.head_size).transpose(1, 2)

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding of `[rows, heads, length, size]`."""
        half = x.shape[-1] // 2
        cosines, sines = self.cosines[positions].to(x.dtype), self.sines[positions].to(x.dtype)
        return x * cosines + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sines
