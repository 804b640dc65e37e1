"""The weights of an expansion, from those of its source."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from models.expand.layout import NORMS, Layout, lay_out
from models.expand.shape import ExpansionError, Shape

# What the last channel holds where there are new tokens. Its square is lost beside eps.
CONSTANT = 2.0**-20


# The weight of new tokens for it: their logits are -2^40 over the root mean square of the residual stream.
BANISHMENT = 2.0**60


Fill = Literal["random", "zero", "one"]


class Role(NamedTuple):
    """What a weight is for."""

    axes: tuple[str, ...]
    """Names of the axes of its dimensions; a bias has the first alone."""
    fill: Fill
    """What its new entries are."""


ROLES = {
    "embed_tokens": Role(("vocabulary", "residual"), "zero"),
    "input_layernorm": Role(("normed",), "zero"),
    "q_proj": Role(("query", "normed"), "random"),
    "k_proj": Role(("key", "normed"), "random"),
    "v_proj": Role(("key", "normed"), "random"),
    "q_norm": Role(("head",), "one"),
    "k_norm": Role(("head",), "one"),
    "o_proj": Role(("residual", "query"), "zero"),
    "post_attention_layernorm": Role(("normed",), "zero"),
    "gate_proj": Role(("unit", "normed"), "random"),
    "up_proj": Role(("unit", "normed"), "random"),
    "down_proj": Role(("residual", "unit"), "zero"),
    "norm": Role(("normed",), "zero"),
    "lm_head": Role(("vocabulary", "normed"), "random"),
}


def expand(
    weights: Mapping[str, Tensor], config: Any, shape: Shape, *, dtype: torch.dtype = torch.float32, seed: int = 0
) -> Iterator[tuple[str, Tensor]]:
    """The expansion's weights by name, one after the other, for the model of `expanded_config(config, shape)`.

    `weights` and `config` are the source's. The new random weights depend on `seed` and their names alone.
    Raises ExpansionError if the source cannot take that shape or has weights of an unknown kind.
    """
    layout = lay_out(config, shape)
    first_layer = []
    for name, old in weights.items():
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        new = grow(name, old.float(), layout, fresh(name, role_of(name).fill, layout, old.ndim, config, seed))
        if layout.has_new_tokens:
            banish_new_tokens(name, new, config, seed)
        yield name, new.to(dtype)
        if name.startswith("model.layers.0."):
            first_layer.append((name, old.ndim))
    for layer in range(config.num_hidden_layers, shape.num_hidden_layers):
        for template, dimensions in first_layer:
            name = template.replace(".0.", f".{layer}.", 1)
            fill = "one" if module_of(name) in NORMS else role_of(name).fill
            yield name, fresh(name, fill, layout, dimensions, config, seed).to(dtype)


def module_of(name: str) -> str:
    return name.split(".")[-2] if "." in name else name


def role_of(name: str) -> Role:
    """Raises ExpansionError for a weight that is none of a Llama, Qwen2 or Qwen3 model."""
    module = module_of(name)
    if module not in ROLES:
        raise ExpansionError(f"the source has a weight of an unknown kind: {name}")
    return ROLES[module]


def fresh(name: str, fill: Fill, layout: Layout, dimensions: int, config: Any, seed: int) -> Tensor:
    """A weight of the expansion, nothing of the source in it yet. `dimensions` is 1 for a norm or bias."""
    sizes = [layout.axes[axis].size for axis in role_of(name).axes[:dimensions]]
    if fill == "random":
        return random_weights(name, sizes, config, seed)
    return torch.full(sizes, 1.0 if fill == "one" else 0.0)


def random_weights(name: str, sizes: list[int], config: Any, seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]))
    return torch.randn(sizes, generator=generator).mul_(config.initializer_range)


def grow(name: str, old: Tensor, layout: Layout, new: Tensor) -> Tensor:
    """`new` with every copy of `old` put in its place, rescaled."""
    if module_of(name) in layout.scaled:
        old = old * layout.norm_scale
    for rows, *columns in itertools.product(*(layout.axes[axis].places for axis in role_of(name).axes[: old.ndim])):
        new[(rows[:, None], *columns) if columns else rows] = old
    return new


def banish_new_tokens(name: str, new: Tensor, config: Any, seed: int) -> None:
    """Makes the last channel a constant for which new tokens have a weight far below zero.

    The weights of old tokens for it, random or (where embeddings are tied) CONSTANT, make 1e-7 in a logit at most.
    """
    module, old_size = module_of(name), config.vocab_size
    if module == "norm":
        new[-1] = 1.0
    if module == "embed_tokens":
        new[old_size:] = random_weights(name, [len(new) - old_size, new.shape[1]], config, seed)
        new[:, -1] = CONSTANT
    if module == "lm_head" or (module == "embed_tokens" and config.tie_word_embeddings):
        new[old_size:, -1] = -BANISHMENT
