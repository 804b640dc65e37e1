"""Runs a transformers model on packed rows of tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.caches.plan import CachePlan
from specpair.models.batch import PassOutput


class PackedModel:
    """The model's own forward pass, with attention by a cache plan."""

    def __init__(self, model: PreTrainedModel):
        self._model = model
        self._device = model.device
        self._decoder_layers = decoder_layers(model)

    def run(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        rows: Sequence[int],
        plan: CachePlan,
        feature_layers: Sequence[int] = (),
        feature_rows: Sequence[int] | None = None,
    ) -> PassOutput:
        """Logits of the tokens at the indices `rows`; if requested, features of those at `feature_rows`, by default the
        same."""
        wanted = self._tensor(rows)
        if not feature_layers:
            return PassOutput(self._logits(token_ids, positions, wanted, plan))
        told = wanted if feature_rows is None else self._tensor(feature_rows)
        with recording([self._decoder_layers[layer] for layer in feature_layers], told) as states:
            logits = self._logits(token_ids, positions, wanted, plan)
        return PassOutput(logits, torch.stack([states[index] for index in range(len(states))]))

    def _logits(self, token_ids: Sequence[int], positions: Sequence[int], rows: Tensor, plan: CachePlan) -> Tensor:
        output: Any = self._model(
            input_ids=self._tensor(token_ids)[None],
            position_ids=self._tensor(positions)[None],
            use_cache=False,
            logits_to_keep=rows,
            cache_plan=plan,
        )
        return output.logits[0].float()

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)


def decoder_layers(model: PreTrainedModel) -> Sequence[nn.Module]:
    """The model's decoder layers, whatever their name: the outermost list with this many modules; empty if none."""
    count = model.config.get_text_config().num_hidden_layers
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return next((list(layers) for layers in lists if len(layers) == count), [])


@contextmanager
def recording(layers: Sequence[nn.Module], rows: Tensor) -> Iterator[dict[int, Tensor]]:
    """Inside the context, records what each layer gives for the tokens at `rows`, by the index in `layers`.

    `[rows, hidden]` float32, copied at once: a later layer may write over it, and the other tokens need not stay.
    """
    states: dict[int, Tensor] = {}

    def keeper(index: int) -> Any:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            hidden: Tensor = output[0] if isinstance(output, tuple) else output
            states[index] = hidden[0, rows].float()

        return keep

    hooks = [layer.register_forward_hook(keeper(index)) for index, layer in enumerate(layers)]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
