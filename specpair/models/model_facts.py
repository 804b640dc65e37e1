"""The facts about a model that the engine needs."""

from dataclasses import dataclass
from pathlib import Path

import torch

from specpair.caches.attention import Variant
from specpair.caches.cache import LayerShape
from specpair.model_info import NOT_QUANTISED, Divergence, EncoderInfo, PassCost, TokenizerFiles


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts without the weights, which the runner holds."""

    name: str
    architecture: str
    parameter_count: int
    dtype: torch.dtype
    is_deterministic: bool = False
    """Whether a token's logits have the same bits in every forward pass: always if the weights are quantised."""
    packing: str = NOT_QUANTISED
    """In how many bits the runner holds the weights: a key of `specpair.models.weight_format.FORMATS`."""
    quantization: str = NOT_QUANTISED
    """The packing, or what a quantised checkpoint says of itself."""
    divergence: Divergence | None = None
    """Between the model as it is served and its checkpoint; None if the weights are not quantised, or not measured."""
    tensor_parallel_size: int = 1
    """Ranks that share the model; the layers are those of one."""
    pass_costs: tuple[PassCost, ...] = ()
    """What forward passes took after loading; empty if they were not measured."""
    cached_token_seconds: float = 0.0
    """As in `specpair.model_info.ModelInfo`."""
    device: torch.device
    layers: dict[int, LayerShape]
    variants: dict[int, Variant]
    """What each attention layer asks for."""
    feature_layer_count: int
    """Layers whose hidden states can be asked for: all, or none where the model has no list of them."""
    vocab_size: int
    max_model_len: int
    encoder: EncoderInfo | None = None
    """None for a model that has a decoder alone."""
    eos_token_ids: list[int]
    tokenizer: TokenizerFiles | None

    @property
    def display_name(self) -> str:
        """The Hugging Face id, or the name of the folder or file without its path, which must not be shown to
        clients."""
        path = Path(self.name)
        return path.resolve().name if path.exists() else self.name
