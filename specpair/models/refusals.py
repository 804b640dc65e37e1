"""Refuses models that cannot be served correctly, judging by their configuration and layers."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NoReturn

from torch import Tensor
from transformers import PreTrainedModel

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


def refuse_unknown_name(settings: Any, error: KeyError, attention: str) -> NoReturn:
    """Raises ModelRefusedError for a name that was looked up in vain while the model was built: that of our `attention`
    where a model has its own, or one of the configuration, such as an activation's."""
    name = error.args[0] if error.args else None
    kind = settings.model_type
    if name == attention:
        raise ModelRefusedError(f"{kind} does not use transformers' attention interface") from error
    field = next((field for field, value in fields_of(settings.to_dict()) if value == name), None)
    if field is None:
        raise ModelRefusedError(f"{kind} cannot be built: KeyError {first_line(error)}") from error
    raise ModelRefusedError(f"{kind}: {field} is {name!r}, which transformers does not know") from error


def fields_of(settings: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All fields of a configuration with their values, those of its parts by their path."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from fields_of(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def refuse_nan(model: PreTrainedModel, logits: Tensor) -> None:
    """Raises ModelRefusedError if the model's own logits are not numbers, and says which weights are not, if any."""
    if not logits.isnan().any():
        return
    kind = model.config.model_type
    named = chain(model.named_parameters(), model.named_buffers())
    if (name := next((name for name, tensor in named if not is_finite(tensor)), None)) is not None:
        raise ModelRefusedError(f"{kind} has no logits that are numbers: {name} holds NaN or infinite weights")
    dtype = str(model.dtype).removeprefix("torch.")
    raise ModelRefusedError(
        f"{kind} has no logits that are numbers, though its weights are: config.json is wrong, or it exceeds {dtype}"
    )


def is_finite(tensor: Tensor) -> bool:
    """Whether all are numbers; of integers and of types of 8 bits, which hold quantised weights, it is taken for
    granted."""
    own: Tensor = getattr(tensor, "to_local", lambda: tensor)()  # of this rank, if the model is divided
    return not own.is_floating_point() or own.itemsize < 2 or bool(own.isfinite().all())


def first_line(error: BaseException) -> str:
    """The first line of an error's message, else its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
