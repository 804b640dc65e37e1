"""The deterministic model runner: a token's logits depend only on the tokens before it.

Floating-point sums differ between products of different shapes. So in the plain runner the last bits of a logit depend
on the rest of the batch, and near-ties may fall either way. Here every shape depends only on the token's position.
Sequences are cut at the multiples of a chunk size, and each chunk is a separate forward pass with a fixed number of
rows: the token at position p is row p mod size. Rows of tokens that are not fed are padding; their keys are not stored
and their logits not used. Attention reads as many keys as there are positions up to the chunk's end, with zeros where
none are stored yet.

So a stored key is the same, bit for bit, whether its token came in a prompt, in a proposal, or was fed again after the
cache was lost. By induction over positions, everything computed from it is the same too.
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

    description = "plain (transformers) in fixed shapes"
    no_trees = "trees of tokens are not supported with --deterministic"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        self.cache = cache
        self.device = loaded.facts.device
        self._packed = PackedModel(loaded.model)
        self._last_position = loaded.facts.max_model_len - 1
        # Other implementations multiply as many rows as are routed to each expert, which varies.
        loaded.model.set_experts_implementation("batched_mm")

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        if batch.parents is not None:
            raise NotSupportedError(self.no_trees)
        outputs: list[PassOutput] = []
        first = 0
        for part in (part for segment in batch.segments for part in aligned_parts(segment, CHUNK_SIZE)):
            end = first + part.token_count
            rows = [row - first for row in batch.rows[bisect_left(batch.rows, first) : bisect_left(batch.rows, end)]]
            told = list(range(part.token_count)) if batch.has_all_features else rows
            outputs.append(self._forward_part(part, batch.token_ids[first:end], rows, batch.feature_layers, told))
            first = end
        features = [output.features for output in outputs if output.features is not None]
        return PassOutput(
            torch.cat([output.logits for output in outputs]), torch.cat(features, 1) if features else None
        )

    def _forward_part(
        self, part: Segment, token_ids: list[int], rows: list[int], feature_layers: tuple[int, ...], told: list[int]
    ) -> PassOutput:
        """Logits of the tokens at the indices `rows`, and features of those at `told`, of a part that lies within one
        chunk."""
        chunk = part._replace(start=part.start - part.start % CHUNK_SIZE, token_count=CHUNK_SIZE)
        before, after = part.start - chunk.start, chunk.end - part.end
        output = self._packed.run(
            [PADDING_TOKEN] * before + token_ids + [PADDING_TOKEN] * after,
            # Padding after the longest sequence has no position in the model.
            [min(position, self._last_position) for position in range(chunk.start, chunk.end)],
            # The product with the vocabulary needs a fixed shape as well: all rows, or none.
            range(chunk.token_count if rows else 0),
            AlignedPlan(self.cache.access([part]), part, chunk, self.device),
            feature_layers,
            range(chunk.token_count if told else 0),
        )
        wanted, kept = ([before + row for row in some] for some in (rows, told))
        return PassOutput(output.logits[wanted], None if output.features is None else output.features[:, kept])


def aligned_parts(segment: Segment, chunk_size: int) -> Iterator[Segment]:
    """The segment, cut at the multiples of `chunk_size`."""
    start = segment.start
    while start < segment.end:
        end = min(segment.end, start - start % chunk_size + chunk_size)
        yield Segment(segment.holding, start, end - start)
        start = end
