"""The sizes of a model, and those that an expansion may have."""

import math
from dataclasses import asdict, dataclass
from typing import Any

MODEL_TYPES = ("llama", "qwen2", "qwen3")


class ExpansionError(ValueError):
    """The source cannot be expanded to that shape, or what came of it computes something else."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model, by the names of its configuration. The size of a head is always the source's."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int | None = None
    """None: as many tokens as the source."""


PRESETS = {
    "100M": Shape(
        num_hidden_layers=12,
        hidden_size=768,
        intermediate_size=2816,
        num_attention_heads=12,
        num_key_value_heads=12,
    ),
    "300M": Shape(
        num_hidden_layers=24,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
    ),
    # The layers of Llama-3.2 1B.
    "1B": Shape(
        num_hidden_layers=16,
        hidden_size=2048,
        intermediate_size=8192,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
    # The layers of Llama-3.2 3B: its matrices and cache, cut into heads of 64 instead of 24 and 8 heads of 128.
    "3B": Shape(
        num_hidden_layers=28,
        hidden_size=3072,
        intermediate_size=8192,
        num_attention_heads=48,
        num_key_value_heads=16,
    ),
}


def shape_of(config: Any) -> Shape:
    """The shape of the model with this configuration."""
    return Shape(**{name: getattr(config, name) for name in Shape.__dataclass_fields__})


def head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def is_power_of_two(number: float) -> bool:
    return math.frexp(number)[0] == 0.5


def check_kind(config: Any) -> None:
    if config.model_type not in MODEL_TYPES:
        raise ExpansionError(f"{config.model_type} models cannot be expanded, only {', '.join(MODEL_TYPES)}")
    if getattr(config, "quantization_config", None):
        raise ExpansionError("quantised weights cannot be expanded")
    if not config.rms_norm_eps > 0:
        raise ExpansionError(f"rms_norm_eps is {config.rms_norm_eps}, not above 0")


def check_sizes(old: Shape, new: Shape) -> None:
    for name, size in asdict(new).items():
        if size is not None and size < getattr(old, name):
            raise ExpansionError(f"{name} is {size}, less than the source's {getattr(old, name)}")
    if new.num_attention_heads % new.num_key_value_heads:
        raise ExpansionError(
            f"{new.num_attention_heads} heads cannot share {new.num_key_value_heads} key-value heads evenly"
        )
    if (new.vocab_size or 0) > (old.vocab_size or 0) and new.hidden_size == old.hidden_size:
        raise ExpansionError(f"new tokens require a channel of their own: hidden_size must be above {old.hidden_size}")
