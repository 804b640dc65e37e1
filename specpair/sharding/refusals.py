"""Which models can be divided among ranks: pure, by their configuration."""

from typing import Any

from specpair.errors import ModelRefusedError

STYLES = {
    "colwise", "rowwise", "embedding_rowwise", "colwise_gather_output", "replicated_with_grad_allreduce"
}  # fmt: skip
"""Ways to divide a layer that are known to keep whole heads on a rank."""


def refuse_undivided(settings: Any, size: int) -> None:
    """Raises ModelRefusedError unless each of `size` ranks can hold the same number of the model's heads."""
    kind = settings.model_type
    text = settings.get_text_config()
    plan: dict[str, str] = getattr(text, "base_model_tp_plan", None) or {}
    option = f"--tensor-parallel-size {size}"
    if getattr(settings, "is_encoder_decoder", False):
        raise ModelRefusedError(f"encoder-decoder models, such as {kind}, cannot be served with {option}")
    if not plan:
        raise ModelRefusedError(f"{kind} has no plan of how to divide its layers; it cannot be served with {option}")
    if unknown := sorted(set(plan.values()) - STYLES):
        raise ModelRefusedError(f"{kind} divides layers by {', '.join(unknown)}, which {option} does not support")
    if getattr(settings, "quantization_config", None) is not None:
        raise ModelRefusedError(f"quantised checkpoints cannot be served with {option}")
    if getattr(settings, "output_token_ids", None) is not None:
        raise ModelRefusedError(f"models with output_token_ids cannot be served with {option}")
    for name, count in head_counts(text).items():
        if count % size:
            raise ModelRefusedError(f"{kind} has {count} {name}, which {size} ranks cannot share evenly ({option})")


def head_counts(text: Any) -> dict[str, int]:
    """The numbers of heads by what they are called."""
    heads: int = text.num_attention_heads
    return {"attention heads": heads, "key heads": getattr(text, "num_key_value_heads", None) or heads}
