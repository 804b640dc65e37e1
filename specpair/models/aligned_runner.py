"""The deterministic model runner: what a token's logits are depends on the tokens before it and on nothing else.

Floating-point sums come out differently in differently shaped products, so in the plain runner the last bits of a
logit depend on what else was in the batch, and a near-tie falls one way or the other. Here every shape depends on the
token's position alone. Sequences are cut at the multiples of a chunk size, and each chunk is a forward pass of its own
that always has as many rows: the token at position p is row p mod size. Rows of tokens that are not fed are padding,
whose keys are not stored and whose logits nobody sees. Attention reads as many keys as the chunk has positions up to
its end, zeros where none are stored yet.

So a stored key is the same, bit for bit, whether its token came in a prompt, among proposed tokens, or again after a
loss; by induction over the positions so is everything computed from it.
"""

from bisect import bisect_left
from collections.abc import Iterator

import torch

from specpair.caches.cache import KeyValueCache
from specpair.caches.holding import Segment
from specpair.caches.plan import AlignedPlan
from specpair.errors import NotSupportedError
from specpair.models.batch import Batch, PassOutput
from specpair.models.loading import LoadedModel
from specpair.models.packed_model import PackedModel

CHUNK_SIZE = 16
PADDING_TOKEN = 0


class AlignedRunner:
    """Runs a forward pass for each aligned chunk of each sequence."""

    description = "run by transformers in fixed shapes"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache, chunk_size: int = CHUNK_SIZE):
        self.cache = cache
        self.device = loaded.facts.device
        self._packed = PackedModel(loaded.model)
        self._chunk_size = chunk_size
        self._last_position = loaded.facts.max_model_len - 1
        # Other ways to run experts multiply as many rows as happen to be routed to each.
        loaded.model.set_experts_implementation("batched_mm")

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        if batch.parents is not None:
            raise NotSupportedError("trees of tokens are not run with --deterministic")
        outputs: list[PassOutput] = []
        first = 0
        for part in (part for segment in batch.segments for part in aligned_parts(segment, self._chunk_size)):
            end = first + part.token_count
            rows = [row - first for row in batch.rows[bisect_left(batch.rows, first) : bisect_left(batch.rows, end)]]
            outputs.append(self._forward_part(part, batch.token_ids[first:end], rows, batch.feature_layers))
            first = end
        features = [output.features for output in outputs if output.features is not None]
        return PassOutput(
            torch.cat([output.logits for output in outputs]), torch.cat(features, 1) if features else None
        )

    def _forward_part(
        self, part: Segment, token_ids: list[int], rows: list[int], feature_layers: tuple[int, ...]
    ) -> PassOutput:
        """What is wanted of the tokens at the indices `rows` of a part that lies within one chunk."""
        chunk = part._replace(start=part.start - part.start % self._chunk_size, token_count=self._chunk_size)
        before, after = part.start - chunk.start, chunk.end - part.end
        output = self._packed.run(
            [PADDING_TOKEN] * before + token_ids + [PADDING_TOKEN] * after,
            # Padding behind the longest sequence has no position in the model.
            [min(position, self._last_position) for position in range(chunk.start, chunk.end)],
            # The vocabulary's product has a shape as well: all rows, or none.
            range(chunk.token_count if rows else 0),
            AlignedPlan(self.cache.access([part]), part, chunk, self.device),
            feature_layers,
        )
        wanted = [before + row for row in rows]
        return PassOutput(output.logits[wanted], None if output.features is None else output.features[:, wanted])


def aligned_parts(segment: Segment, chunk_size: int) -> Iterator[Segment]:
    """The segment, cut at the multiples of `chunk_size`."""
    start = segment.start
    while start < segment.end:
        end = min(segment.end, start - start % chunk_size + chunk_size)
        yield Segment(segment.holding, start, end - start)
        start = end
