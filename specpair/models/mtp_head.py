"""Multi-token prediction: layers of the target's own checkpoint that draft, as transformers loads and runs them.

The layer at depth 0 has for each token a pair: the target's last hidden state of the token before, and the token's
embedding. Each further depth has the state of the depth before in place of the target's. Depth d drafts the token at
place d of a proposal (DeepSeek-V3, arXiv 2412.19437, section 2.2).
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import MtpModel

from specpair.caches.cache import LayerShape
from specpair.caches.plan import CachePlan
from specpair.errors import ModelRefusedError
from specpair.models.layer_recorder import LayerRecorder
from specpair.models.loading import LoadedModel
from specpair.models.medusa_head import final_norm
from specpair.models.mtp_runner import MtpRunner
from specpair.models.refusals import first_line
from specpair.models.runner import Runner


class MtpHead:
    """The layers' arithmetic, without any state of sequences."""

    def __init__(self, loaded: LoadedModel):
        """Raises ModelRefusedError for a model without such layers, or whose layers cannot be run."""
        facts = loaded.facts
        config: Any = loaded.model.config
        self.depth = getattr(config.get_text_config(), "num_mtp_layers", None) or 0
        if not self.depth:
            raise ModelRefusedError(f"{facts.architecture} has no layers for multi-token prediction: no num_mtp_layers")
        self.norm = final_norm(loaded)
        self.device, self.dtype = facts.device, facts.dtype
        self.feature_layer = facts.feature_layer_count - 1
        self._model = load_layers(loaded)
        self._width: int = config.get_text_config().hidden_size
        self._shapes = self._record()

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What is cached for each token: keys and values of each depth; the target's last hidden state, after its final
        norm, and the states of all depths but the last."""
        return (*self._shapes, *[LayerShape(1, self._width, 0)] * self.depth)

    def run(self, depth: int, token_ids: Tensor, before: Tensor, positions: Tensor, plan: CachePlan) -> Tensor:
        """States `[tokens, width]` of a depth, of pairs of tokens `[tokens]` and states `[tokens, width]`."""
        states = self._model.forward_layer(
            depth,
            before.to(self.dtype)[None],
            positions[None],
            None,
            input_ids=token_ids[None],
            cache_plan=plan,
        )
        return states[0]

    def logits(self, states: Tensor) -> Tensor:
        """`[rows, vocabulary]` float32."""
        return self._model._project_to_logits(states).float()

    def runner(self, inner: Runner, layer_count: int) -> MtpRunner:
        return MtpRunner(inner, self, layer_count)

    @torch.inference_mode()
    def _record(self) -> list[LayerShape]:
        """What the attention of each depth caches. Raises ModelRefusedError if one has none, or several."""
        recorder = LayerRecorder()
        ids = torch.zeros(4, dtype=torch.long, device=self.device)
        states = torch.zeros(4, self._width, device=self.device)
        try:
            for depth in range(self.depth):
                states = self.run(depth, ids, states, torch.arange(4, device=self.device), recorder)
        except (TypeError, KeyError, AttributeError, RuntimeError, ValueError) as error:
            raise ModelRefusedError(f"layers for multi-token prediction cannot run: {first_line(error)}") from error
        if sorted(recorder.shapes) != list(range(self.depth)):
            raise ModelRefusedError("layers for multi-token prediction do not use transformers' attention interface")
        return [recorder.shapes[depth] for depth in range(self.depth)]


def load_layers(loaded: LoadedModel) -> Any:
    """The layers from the target's checkpoint. Raises ModelRefusedError if they are not there as transformers needs
    them."""
    try:
        layers: Any = MtpModel.from_pretrained(loaded.model)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, StopIteration) as error:
        reason = f"layers for multi-token prediction cannot be loaded: {first_line(error)}"
        raise ModelRefusedError(reason) from error
    return layers.to(loaded.facts.device).eval()
