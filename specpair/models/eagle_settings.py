"""What the configuration of an EAGLE-3 head says, in the layout of `vllm-project/speculators`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from specpair.errors import ModelRefusedError
from specpair.models.head_files import CONFIG, read_config


@dataclass(frozen=True, kw_only=True)
class EagleSettings:
    """The shape of a head; its rotary embedding is the target's, whatever the configuration says of it."""

    width: int
    heads: int
    key_heads: int
    head_size: int
    eps: float
    feature_layers: tuple[int, ...] | None
    """Layers of the target whose inputs the head reads, counted from 0; the number of layers is what leaves the last.
    None: the usual three."""
    normalises_residual: bool
    """Whether the normalised hidden state goes on beside the attention, and not the hidden state itself."""
    normalises_features: bool
    """Whether the joined features are normalised together (`norm_before_fc`)."""
    normalises_each_feature: bool
    """Whether each layer's features are normalised (`fc_norm`)."""
    feeds_back_normalised: bool
    """Whether the next step is given the hidden state after the final norm (`norm_output`)."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises ModelRefusedError for a folder without a head of this kind."""
        try:
            fields = read_config(folder)
            kind = fields.get("speculators_model_type")
            if kind != "eagle3":
                raise ModelRefusedError(f"{folder} holds no EAGLE-3 head: speculators_model_type is {kind!r}")
            return cls._of(fields, fields["transformer_layer_config"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelRefusedError(f"{folder / CONFIG} cannot be read: {type(error).__name__} {error}") from error

    @classmethod
    def _of(cls, fields: dict[str, Any], layer: dict[str, Any]) -> Self:
        refuse_other_layers(layer)
        layers = fields.get("eagle_aux_hidden_state_layer_ids")
        heads = int(layer.get("num_attention_heads", 32))
        width = int(layer.get("hidden_size", 4096))
        return cls(
            width=width,
            heads=heads,
            key_heads=int(layer.get("num_key_value_heads") or heads),
            head_size=int(layer.get("head_dim") or width // heads),
            eps=float(layer.get("rms_norm_eps", 1e-6)),
            feature_layers=None if layers is None else tuple(int(number) for number in layers),
            normalises_residual=bool(fields.get("norm_before_residual", False)),
            normalises_features=bool(fields.get("norm_before_fc", False)),
            normalises_each_feature=bool(fields.get("fc_norm", False)),
            feeds_back_normalised=bool(fields.get("norm_output", False)),
        )


def refuse_other_layers(layer: dict[str, Any]) -> None:
    """Raises ModelRefusedError for anything but one decoder layer of Llama's kind."""
    required = {"model_type": "llama", "num_hidden_layers": 1, "hidden_act": "silu", "attention_bias": False}
    required |= {"mlp_bias": False, "sliding_window": None}
    given = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False} | layer
    for name, value in required.items():
        if (found := given.get(name, value)) != value:
            raise ModelRefusedError(f"an EAGLE-3 head with {name} {found!r} is not supported, only with {value!r}")
