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

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specpair.caches.cache import CachePlan, KeyValueCache
from specpair.caches.holding import Segment
from specpair.models.attention import Variant, attend, causal_mask
from specpair.models.batch import Batch
from specpair.models.loading import LoadedModel
from specpair.models.model_runner import ModelRunner

CHUNK_SIZE = 16
PADDING_TOKEN = 0


class AlignedRunner(ModelRunner):
    """Runs a forward pass for each aligned chunk of each sequence."""

    description = "run by transformers in fixed shapes"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache, chunk_size: int = CHUNK_SIZE):
        super().__init__(loaded, cache)
        self._chunk_size = chunk_size
        self._last_position = loaded.facts.max_model_len - 1
        # Other ways to run experts multiply as many rows as happen to be routed to each.
        loaded.model.set_experts_implementation("batched_mm")

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        logits = []
        offset = 0
        for segment, row_count in zip(batch.segments, batch.row_counts, strict=True):
            for part in aligned_parts(segment, self._chunk_size):
                token_ids = batch.token_ids[offset : offset + part.token_count]
                offset += part.token_count
                wanted = max(0, min(part.token_count, part.end - (segment.end - row_count)))
                logits.append(self._forward_part(part, token_ids, wanted))
        return torch.cat(logits)

    def _forward_part(self, part: Segment, token_ids: list[int], wanted: int) -> Tensor:
        """Logits `[wanted, vocabulary]` of the last tokens of a part that lies within one chunk."""
        chunk = part._replace(start=part.start - part.start % self._chunk_size, token_count=self._chunk_size)
        before, after = part.start - chunk.start, chunk.end - part.end
        logits = self._run(
            [PADDING_TOKEN] * before + token_ids + [PADDING_TOKEN] * after,
            # Padding behind the longest sequence has no position in the model.
            [min(position, self._last_position) for position in range(chunk.start, chunk.end)],
            # The vocabulary's product has a shape as well: all rows, or none.
            range(chunk.token_count if wanted else 0),
            AlignedAttention(self.cache.plan([part]), part, chunk, self.device),
        )
        end = before + part.token_count
        return logits[end - wanted : end]


def aligned_parts(segment: Segment, chunk_size: int) -> Iterator[Segment]:
    """The segment, cut at the multiples of `chunk_size`."""
    start = segment.start
    while start < segment.end:
        end = min(segment.end, start - start % chunk_size + chunk_size)
        yield Segment(segment.holding, start, end - start)
        start = end


@dataclass
class AlignedAttention:
    """The ForwardContext of one chunk: stores the keys of the part that is fed, attends with all rows."""

    plan: CachePlan
    part: Segment
    chunk: Segment
    device: torch.device
    _masks: dict[int | None, Tensor | None] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        fed = slice(self.part.start - self.chunk.start, self.part.end - self.chunk.start)
        self.plan.write(layer, keys[:, fed], values[:, fed])
        held_keys, held_values = self.plan.read(layer, 0)
        mask = self._mask(variant.sliding_window)
        return attend(query, padded(held_keys, self.chunk.end), padded(held_values, self.chunk.end), mask, variant)

    def _mask(self, window: int | None) -> Tensor | None:
        """`[chunk size, chunk end]`, True where a row may look."""
        if window not in self._masks:
            self._masks[window] = causal_mask(self.chunk, window, self.device)
        return self._masks[window]


def padded(held: Tensor, length: int) -> Tensor:
    """`[heads, length, size]`: what is held, then zeros, in memory of its own, so that every cache gives it alike."""
    copy = held.new_zeros(held.size(0), length, held.size(2))
    copy[:, : held.size(1)] = held
    return copy
