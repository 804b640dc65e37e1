"""Where every part of the source goes in the expansion, and by what it is multiplied."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from models.expand.shape import ExpansionError, Shape, check_kind, check_sizes, head_size, is_power_of_two, shape_of

NORMS = ("input_layernorm", "post_attention_layernorm", "norm")


class Axis(NamedTuple):
    """One dimension of a weight as it grows."""

    size: int
    """Of the expansion."""
    places: list[Tensor]
    """For each copy of the source's entries, where they go: indices `[old size]`."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything goes, and by what it is multiplied."""

    axes: dict[str, Axis]
    copies: int
    """How often the residual stream is repeated."""
    norm_scale: float
    scaled: tuple[str, ...]
    """The modules whose weights are multiplied by it."""
    eps: float
    has_new_tokens: bool


def lay_out(config: Any, shape: Shape) -> Layout:
    """The growth from the model of `config` to `shape`. Raises ExpansionError if there is none."""
    check_kind(config)
    check_sizes(shape_of(config), shape)
    old, new = config.hidden_size, shape.hidden_size
    vocab_size = shape.vocab_size or config.vocab_size
    has_new_tokens = vocab_size > config.vocab_size
    copies = choose_copies(old, new - has_new_tokens, new)
    return Layout(
        axes={
            **head_axes(config, shape),
            "residual": Axis(new, [torch.arange(old) + i * old for i in range(copies)]),
            "normed": Axis(new, [torch.arange(old)]),
            "unit": Axis(shape.intermediate_size, [torch.arange(config.intermediate_size)]),
            "vocabulary": Axis(vocab_size, [torch.arange(config.vocab_size)]),
        },
        copies=copies,
        norm_scale=math.sqrt(copies * old / new),
        scaled=(*NORMS, "q_proj", "k_proj") if config.model_type == "qwen3" else NORMS,
        eps=config.rms_norm_eps * copies * old / new,
        has_new_tokens=has_new_tokens,
    )


def choose_copies(old: int, room: int, new: int) -> int:
    """The least number of copies of `old` channels within `room` whose norm scale is a power of two; else 1."""
    counts = range(1, room // old + 1)
    return next((count for count in counts if is_power_of_two(math.sqrt(count * old / new))), 1)


def head_axes(config: Any, shape: Shape) -> dict[str, Axis]:
    """The axes of queries, of keys and values, and within a head."""
    size = head_size(config)
    old_group = config.num_attention_heads // config.num_key_value_heads
    new_group = shape.num_attention_heads // shape.num_key_value_heads
    # New groups into which an old one is split; each of them gets its key-value head.
    parts = -(-old_group // new_group)
    if config.num_key_value_heads * parts > shape.num_key_value_heads:
        raise ExpansionError(
            f"{config.num_key_value_heads} groups of {old_group} heads do not fit"
            f" into {shape.num_key_value_heads} of {new_group}"
        )
    queries = []
    for head in range(config.num_attention_heads):
        group, index = divmod(head, old_group)
        queries.append((group * parts + index // new_group) * new_group + index % new_group)
    groups = range(config.num_key_value_heads)
    return {
        "query": Axis(shape.num_attention_heads * size, [rows_of_heads(queries, size)]),
        "key": Axis(
            shape.num_key_value_heads * size,
            [rows_of_heads((group * parts + part for group in groups), size) for part in range(parts)],
        ),
        "head": Axis(size, [torch.arange(size)]),
    }


def rows_of_heads(heads: Iterable[int], size: int) -> Tensor:
    """The rows `[heads * size]` of these heads in a projection."""
    return (torch.tensor(list(heads))[:, None] * size + torch.arange(size)).flatten()


def expanded_config(config: Any, shape: Shape) -> Any:
    """The configuration of the expansion. Raises ExpansionError if the library refuses it."""
    layout = lay_out(config, shape)
    values = config.to_dict() | {name: size for name, size in asdict(shape).items() if size is not None}
    values |= {"rms_norm_eps": layout.eps, "head_dim": head_size(config)}
    if values.get("layer_types"):
        added = shape.num_hidden_layers - config.num_hidden_layers
        values["layer_types"] = [*values["layer_types"], *["full_attention"] * added]
    try:
        return type(config)(**values)
    except (ValueError, StrictDataclassError) as error:
        raise ExpansionError(f"{config.model_type} refuses this shape: {error}") from error
