"""Medusa heads: each guesses one of the following tokens from the target's last hidden state (arXiv 2401.10774).

The i-th head, applied to the state from which a token came, gives the token i places after that one. It does not know
the tokens between, so its distribution is the same whatever was drawn before. The names of its tensors are those of
Medusa's own checkpoints. A checkpoint without output matrices has the target's.
"""

from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from specpair.caches.cache import LayerShape
from specpair.errors import ModelRefusedError
from specpair.models.head_files import check_shapes, count_in, read_tensors
from specpair.models.head_product import HeadProduct, head_product
from specpair.models.loading import LoadedModel
from specpair.models.medusa_runner import MedusaRunner
from specpair.models.runner import Runner

MOST_HEADS = 16
MOST_BLOCKS = 8
PREFIX = "medusa_head."
"""Beginning of all names in some checkpoints."""


class MedusaHead:
    """The heads' arithmetic, without any state of sequences."""

    def __init__(self, folder: Path, fields: dict[str, Any], loaded: LoadedModel):
        """Raises ModelRefusedError for heads that do not fit the target."""
        model: Any = loaded.model
        facts = loaded.facts
        self.head_count = count_in(fields, "medusa_num_heads", MOST_HEADS)
        block_count = count_in(fields, "medusa_num_layers", MOST_BLOCKS)
        self.norm = final_norm(loaded)
        self.device, self.dtype = facts.device, facts.dtype
        self.feature_layer = facts.feature_layer_count - 1
        self._width = model.config.get_text_config().hidden_size
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in read_tensors(folder).items()}
        has_outputs = f"0.{block_count}.weight" in tensors
        shapes = expected_shapes(self.head_count, block_count, self._width, facts.vocab_size if has_outputs else None)
        check_shapes(folder, tensors, shapes)
        placed = {name: tensor.to(facts.device, facts.dtype) for name, tensor in tensors.items()}
        self._blocks: list[list[tuple[HeadProduct, Tensor]]] = [
            [
                (head_product(placed[f"{head}.{block}.linear.weight"]), placed[f"{head}.{block}.linear.bias"].float())
                for block in range(block_count)
            ]
            for head in range(self.head_count)
        ]
        own = [head_product(placed[f"{head}.{block_count}.weight"]) for head in range(self.head_count) if has_outputs]
        self._outputs: list[HeadProduct] = own or [head_product(lent_output(loaded))] * self.head_count

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What is cached for each token: what leaves the target's last layer."""
        return (LayerShape(1, self._width, 0),)

    def logits(self, index: int, states: Tensor) -> Tensor:
        """`[rows, vocabulary]` of the head at `index`, for what leaves the last layer, `[rows, width]`."""
        hidden = self.norm(states.to(self.dtype)).float()
        for product, bias in self._blocks[index]:
            hidden = hidden + F.silu(product(hidden) + bias)
        return self._outputs[index](hidden)

    def runner(self, inner: Runner, layer_count: int) -> MedusaRunner:
        return MedusaRunner(inner, self, layer_count)


def expected_shapes(heads: int, blocks: int, width: int, outputs: int | None) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint; `outputs` are None without output matrices."""
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for block in range(blocks):
            shapes[f"{head}.{block}.linear.weight"] = (width, width)
            shapes[f"{head}.{block}.linear.bias"] = (width,)
        if outputs is not None:
            shapes[f"{head}.{blocks}.weight"] = (outputs, width)
    return shapes


def lent_output(loaded: LoadedModel) -> Tensor:
    """The target's output matrix `[vocabulary, width]`. Raises ModelRefusedError if it has none for all tokens."""
    model: Any = loaded.model
    weight: Any = getattr(model.get_output_embeddings(), "weight", None)
    is_whole = isinstance(weight, Tensor) and weight.is_floating_point() and len(weight) == loaded.facts.vocab_size
    if not is_whole:
        raise ModelRefusedError("the target has no whole output matrix to lend: the heads need their own")
    return weight.detach().to(loaded.facts.dtype)


def final_norm(loaded: LoadedModel) -> Any:
    """The target's norm before its output head. Raises ModelRefusedError if it has none that is known."""
    inner: Any = loaded.model.base_model
    norm = next((getattr(inner, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(inner, name)), None)
    if norm is None or not loaded.facts.feature_layer_count:
        raise ModelRefusedError(f"{loaded.facts.architecture} has no final norm that heads could share")
    return norm
