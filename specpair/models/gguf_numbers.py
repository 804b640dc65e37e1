"""Gives a configuration the numbers of a GGUF file that transformers' reader leaves out.

It would keep its class's own in their place: the model would be served, with other logits than the file's.
"""

from typing import Any

from specpair.errors import ModelRefusedError
from specpair.models.gguf_header import ARCHITECTURE, GgufHeader

CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
"""GGUF has transformers' names for them."""
QUERY_SCALE = "query_pre_attn_scalar"
BY_WIDTH = {"gemma2": 46, "gemma3": 62}
"""Layers of the models of 27 B parameters, whose queries are scaled by width and not by head, as in llama.cpp."""


def complete_numbers(settings: Any, header: GgufHeader) -> None:
    """Raises ModelRefusedError for a number that has no place in the configuration."""
    kind = header.metadata[ARCHITECTURE]
    numbers = {key: header.metadata.get(f"{kind}.{key}") or None for key in NUMBERS}
    for key, give in NUMBERS.items():
        if numbers[key] is not None and not give(settings, numbers[key]):
            raise ModelRefusedError(f"its {kind}.{key} is {numbers[key]}, which is not read from GGUF files")
    if hasattr(settings, QUERY_SCALE):
        is_by_width = settings.num_hidden_layers == BY_WIDTH.get(kind)
        settings.query_pre_attn_scalar = width_of_head(settings) if is_by_width else head_size(settings)


def give_base(settings: Any, base: float) -> bool:
    """The base of the rotary frequencies."""
    if rope := common_rotation(settings):
        rope["rope_theta"] = base
    return True


def give_rotated(settings: Any, count: int) -> bool:
    """How many dimensions of a head rotate. Few models have a place for less than all."""
    rope = common_rotation(settings)
    if "partial_rotary_factor" in rope:
        rope["partial_rotary_factor"] = count / head_size(settings)
        return True
    return not rope or count == head_size(settings)


def common_rotation(settings: Any) -> dict[str, Any]:
    """The rotary embedding of all layers; empty without one, or if layers differ, where transformers reads it."""
    rope = getattr(settings, "rope_parameters", None) or {}
    return rope if "rope_theta" in rope else {}


def give_window(settings: Any, window: int) -> bool:
    """The window of attention. Where only some layers have one, transformers reads it."""
    if window >= settings.max_position_embeddings:
        return True
    if hasattr(settings, "sliding_window") and not getattr(settings, "layer_types", None):
        settings.sliding_window = window
    return getattr(settings, "sliding_window", None) == window


def give_cap(name: str) -> Any:
    """Gives the cap of that name."""

    def give(settings: Any, cap: float) -> bool:
        if hasattr(settings, name):
            setattr(settings, name, cap)
        return hasattr(settings, name)

    return give


NUMBERS = {
    "rope.freq_base": give_base,
    "rope.dimension_count": give_rotated,
    "attention.sliding_window": give_window,
    **{name: give_cap(name) for name in CAPS},
}
"""What gives the configuration the number of a key, and says whether it has it now."""


def head_size(settings: Any) -> int:
    return getattr(settings, "head_dim", None) or width_of_head(settings)


def width_of_head(settings: Any) -> int:
    return settings.hidden_size // settings.num_attention_heads
