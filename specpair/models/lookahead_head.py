"""PaSS: learnt embeddings that follow the text and stand for tokens that are not known yet (arXiv 2311.13581).

They become further rows of the target's input embeddings, after those of the vocabulary, so every runner feeds them as
it feeds tokens. The output head stays as it is: they are never given.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specpair.caches.cache import LayerShape
from specpair.models.head_files import check_shapes, count_in, read_tensors
from specpair.models.loading import LoadedModel
from specpair.models.lookahead_runner import LookaheadRunner
from specpair.models.runner import Runner

MOST_EMBEDDINGS = 32
NAME = "lookahead.weight"


class LookaheadHead:
    """The embeddings, which the target's model has taken in."""

    shapes: tuple[LayerShape, ...] = ()
    """What is cached for each token: nothing."""

    def __init__(self, folder: Path, fields: dict[str, Any], loaded: LoadedModel):
        """Adds the embeddings to the model. Raises ModelRefusedError if they do not fit it."""
        self.count = count_in(fields, "lookahead_count", MOST_EMBEDDINGS)
        tensors = read_tensors(folder)
        model: Any = loaded.model
        embedding: Any = model.get_input_embeddings()
        check_shapes(folder, tensors, {NAME: (self.count, embedding.weight.size(1))})
        self._longest = loaded.facts.max_model_len
        self.first_id = len(embedding.weight)
        """The id of the first embedding. No token of a client has it: ids are below the size of the vocabulary."""
        append_rows(embedding, model.get_output_embeddings(), tensors[NAME])

    def runner(self, inner: Runner, layer_count: int) -> LookaheadRunner:
        return LookaheadRunner(inner, self.first_id, self.count, self._longest)


def append_rows(embedding: Any, output: Any | None, rows: Tensor) -> None:
    """Adds rows to the embeddings in place. An output head that shares their memory still does, without these rows."""
    old = embedding.weight
    lent = None if output is None else output.weight
    joined = torch.cat([old.detach(), rows.to(old.device, old.dtype)])
    embedding.weight = nn.Parameter(joined, requires_grad=False)
    embedding.num_embeddings = len(joined)
    if output is not None and lent is not None and lent.data_ptr() == old.data_ptr():
        output.weight = nn.Parameter(joined[: len(lent)], requires_grad=False)
