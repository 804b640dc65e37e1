"""Refuses models that cannot be served correctly, judging by their configuration and layers."""

from typing import Any

from specpair.caches.attention import Variant
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.packed_linear import offers_fbgemm

SERVED_LAYERS = {"full_attention", "sliding_attention", "attention"}
RECURRENT_MARKS = ("mamba", "rwkv", "ssm", "linear_attention", "recurrent", "conv_L_cache", "lightning")


def is_encoder_decoder(settings: Any) -> bool:
    """Whether the model has an encoder, which reads the input, beside the decoder."""
    return bool(getattr(settings, "is_encoder_decoder", False))


def refuse_by_configuration(settings: Any) -> None:
    """Raises ModelRefusedError if the configuration says that the model cannot be rolled back or masked."""
    kind = settings.model_type
    text = settings.get_text_config()
    layer_types = set(getattr(text, "layer_types", None) or ())
    if unserved := sorted(layer_types - SERVED_LAYERS):
        raise ModelRefusedError(
            f"{kind} has layers of type {', '.join(unserved)}, which cannot be rolled back or masked"
        )
    marks = [mark for mark in RECURRENT_MARKS if mark in kind.lower() or hasattr(text, mark)]
    if marks:
        raise ModelRefusedError(f"{kind} keeps recurrent state ({', '.join(marks)}), which cannot be rolled back")


def refuse_quantization(config: EngineConfig) -> None:
    """Raises ModelRefusedError if the configuration rules out the weights that it asks for."""
    if config.quantization == "none":
        return
    wanted = f"--quantization {config.quantization}"
    if config.runner == "plain":
        raise ModelRefusedError(f"{wanted} is for the fused runner, and cannot be combined with --runner plain")
    if not offers_fbgemm():
        raise ModelRefusedError(f"{wanted} needs FBGEMM, which this build of torch does not have; builds for x86 do")


def refuse_batch_dependent_positions(settings: Any, max_model_len: int) -> None:
    """Raises ModelRefusedError for LongRoPE beyond its original length: its factors depend on the longest sequence in
    the batch, so other requests would change a request's text."""
    text = settings.get_text_config()
    parameters = getattr(text, "rope_parameters", None) or {}
    by_layer_type = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in by_layer_type or [parameters]:
        original = rope.get("original_max_position_embeddings") or text.max_position_embeddings
        if rope.get("rope_type") == "longrope" and max_model_len > original:
            raise ModelRefusedError(
                f"{text.model_type} scales positions by the longest sequence of a batch (longrope);"
                f" it is served up to --max-model-len {original}"
            )


def refuse_unmasked_windows(text: Any, variants: dict[int, Variant]) -> None:
    """Raises ModelRefusedError if a layer declared as sliding passes no window to its attention, or the reverse: it
    would be masked wrongly."""
    for layer, declared in enumerate(getattr(text, "layer_types", None) or ()):
        if (declared == "sliding_attention") != (variants[layer].sliding_window is not None):
            raise ModelRefusedError(f"{text.model_type} layer {layer} is declared {declared} but masked otherwise")


def refuse_incomplete(name: str, report: dict[str, Any], *, is_quantized: bool) -> None:
    """Raises ModelRefusedError if transformers' loading report names weights that are not in the checkpoint: random
    ones would be served. In a quantised one no tensor may be left over either: without its scale a weight is wrong.
    """
    faults = {"missing_keys": "is not in it", "unexpected_keys": "has no place in the model"}
    for kind, fault in faults.items():
        names = sorted(report[kind]) if kind == "missing_keys" or is_quantized else []
        if names:
            others = f", nor {len(names) - 1} more" if len(names) > 1 else ""
            raise ModelRefusedError(f"{name} cannot be loaded: {names[0]} {fault}{others}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, else its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
