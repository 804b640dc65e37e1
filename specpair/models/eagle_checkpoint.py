"""The weights of an EAGLE-3 head: its own file, completed with what the target lends it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specpair.errors import ModelRefusedError
from specpair.models.eagle_settings import EagleSettings
from specpair.models.head_files import read_tensors
from specpair.models.loading import LoadedModel
from specpair.models.output_tokens import OutputTokens

LAYER = "layers.0."
NAMES_OF_EAGLE = {"midlayer.": LAYER}
"""Beginnings of names as SafeAILab's own checkpoints have them."""


@dataclass(frozen=True, kw_only=True)
class EagleWeights:
    """Tensors by the names that speculators gives them, in the target's type and on its device."""

    settings: EagleSettings
    feature_layers: tuple[int, ...]
    tensors: dict[str, Tensor]
    embedding: Tensor
    """`[vocabulary, width]`: its own, or the target's."""
    output: Tensor
    """`[draft vocabulary, width]`: its own, or rows of the target's head."""
    token_ids: Tensor
    """int64 `[draft vocabulary]`: the target's id of each output."""
    is_stored_in_half: bool
    """Whether the matrices of its layer have 16 bits in its file, whatever the target computes in."""

    def outputs(self, vocab_size: int) -> OutputTokens | None:
        """The tokens that the head gives; None if it gives all."""
        return None if len(self.token_ids) == vocab_size else OutputTokens(self.token_ids, vocab_size)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


def read_eagle(folder: Path, loaded: LoadedModel) -> EagleWeights:
    """The head in `folder` for a target. Raises ModelRefusedError if it is none, or does not fit."""
    settings = EagleSettings.read(folder)
    tensors = renamed(read_tensors(folder))
    model: Any = loaded.model
    facts = loaded.facts

    def placed(tensor: Tensor) -> Tensor:
        return tensor.detach().to(facts.device, facts.dtype)

    token_ids = output_tokens(folder, tensors, facts.vocab_size)
    own_output = tensors.pop("lm_head.weight", None)
    output = model.get_output_embeddings().weight.detach()[token_ids] if own_output is None else own_output
    own_embedding = tensors.pop("embed_tokens.weight", None)
    embedding = model.get_input_embeddings().weight if own_embedding is None else own_embedding
    weights = EagleWeights(
        settings=settings,
        feature_layers=tapped_layers(settings, facts.feature_layer_count),
        tensors={name: placed(tensor) for name, tensor in tensors.items()},
        embedding=placed(embedding),
        output=placed(output),
        token_ids=token_ids.to(facts.device),
        is_stored_in_half=all(tensor.itemsize == 2 for tensor in tensors.values() if tensor.ndim == 2),
    )
    check_shapes(folder, weights, model.config.get_text_config().hidden_size, facts.vocab_size)
    return weights


def renamed(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names of speculators."""
    for old, new in NAMES_OF_EAGLE.items():
        found = {new + name.removeprefix(old) if name.startswith(old) else name: found[name] for name in found}
    return found


def output_tokens(folder: Path, tensors: dict[str, Tensor], vocab_size: int) -> Tensor:
    """The target's id of each output: `d2t` has what is to be added to the output's own number. Without it, all ids."""
    tensors.pop("t2d", None)
    offsets = tensors.pop("d2t", None)
    if offsets is None:
        return torch.arange(vocab_size)
    token_ids = offsets.long() + torch.arange(len(offsets))
    ascends = bool((token_ids[1:] > token_ids[:-1]).all())
    if not len(token_ids) or not ascends or token_ids[0] < 0 or token_ids[-1] >= vocab_size:
        raise ModelRefusedError(f"{folder}: d2t does not map to ascending ids below {vocab_size}")
    return token_ids


def tapped_layers(settings: EagleSettings, layer_count: int) -> tuple[int, ...]:
    """The target's layers after which the features are taken. Raises ModelRefusedError for layers that it lacks.

    Speculators names a layer whose input is meant: that is what leaves the layer before.
    """
    inputs = settings.feature_layers or (2, layer_count // 2, layer_count - 3)
    taps = tuple(number - 1 for number in inputs)
    if not all(0 <= tap < layer_count for tap in taps) or list(taps) != sorted(set(taps)):
        raise ModelRefusedError(f"a head that reads the layers {list(inputs)} does not fit {layer_count} layers")
    return taps


def check_shapes(folder: Path, weights: EagleWeights, hidden: int, vocab_size: int) -> None:
    """Raises ModelRefusedError for a tensor that is missing, superfluous, or of another shape than it must have."""
    expected = expected_shapes(weights, hidden)
    found = {name: tuple(tensor.shape) for name, tensor in weights.tensors.items()}
    if missing := sorted(expected.keys() - found.keys()):
        raise ModelRefusedError(f"{folder} has no {missing[0]}")
    if unknown := sorted(found.keys() - expected.keys()):
        raise ModelRefusedError(f"{folder} has {unknown[0]}, which is not supported")
    width, outputs = weights.settings.width, len(weights.token_ids)
    expected |= {"embed_tokens.weight": (vocab_size, width), "lm_head.weight": (outputs, width)}
    found |= {"embed_tokens.weight": tuple(weights.embedding.shape), "lm_head.weight": tuple(weights.output.shape)}
    for name, shape in expected.items():
        if found[name] != shape:
            raise ModelRefusedError(f"{folder}: {name} is {found[name]}, and must be {shape}")


def expected_shapes(weights: EagleWeights, hidden: int) -> dict[str, tuple[int, ...]]:
    settings, count = weights.settings, len(weights.feature_layers)
    width, size = settings.width, settings.head_size
    gate = weights.tensors.get(f"{LAYER}mlp.gate_proj.weight")
    inner = 0 if gate is None else len(gate)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, count * hidden),
        "norm.weight": (width,),
        f"{LAYER}self_attn.q_proj.weight": (settings.heads * size, 2 * width),
        f"{LAYER}self_attn.k_proj.weight": (settings.key_heads * size, 2 * width),
        f"{LAYER}self_attn.v_proj.weight": (settings.key_heads * size, 2 * width),
        f"{LAYER}self_attn.o_proj.weight": (width, settings.heads * size),
        f"{LAYER}mlp.gate_proj.weight": (inner, width),
        f"{LAYER}mlp.up_proj.weight": (inner, width),
        f"{LAYER}mlp.down_proj.weight": (width, inner),
    }
    for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        shapes[f"{LAYER}{norm}.weight"] = (width,)
    if settings.normalises_features:
        shapes["input_norm.weight"] = (count * hidden,)
    if settings.normalises_each_feature:
        shapes |= {f"fc_norm.{index}.weight": (hidden,) for index in range(count)}
    return shapes
