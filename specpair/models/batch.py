"""What one forward pass computes, and what comes of it."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from torch import Tensor

from specpair.caches.attention import split_parents, tree_positions
from specpair.caches.holding import Segment


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens of several sequences, packed into one row. Plain lists; the runner turns them into tensors."""

    segments: list[Segment]
    """Whose tokens they are, one after the other."""
    token_ids: list[int]
    positions: list[int]
    """Of every token within its sequence."""
    rows: list[int]
    """Ascending indices of the tokens whose logits are wanted."""
    parents: list[int | None] | None = None
    """For each token the index of the token before it; None after what the cache holds. None for chains throughout."""
    feature_layers: tuple[int, ...] = ()
    """Decoder layers whose hidden states are wanted."""

    @classmethod
    def of_chains(
        cls,
        segments: list[Segment],
        token_ids: list[int],
        row_counts: list[int],
        feature_layers: tuple[int, ...] = (),
    ) -> Self:
        """Every token follows the one before it; of each segment the last rows are wanted, as many as its count."""
        return cls(
            segments=segments,
            token_ids=token_ids,
            positions=[position for s in segments for position in range(s.start, s.end)],
            rows=last_rows(segments, row_counts),
            feature_layers=feature_layers,
        )

    @classmethod
    def of_trees(
        cls, segments: list[Segment], token_ids: list[int], row_counts: list[int], parents: list[int | None]
    ) -> Self:
        """The same where segments branch."""
        split = split_parents(segments, parents)
        return cls(
            segments=segments,
            token_ids=token_ids,
            positions=[p for s, own in zip(segments, split, strict=True) for p in tree_positions(s.start, own)],
            rows=last_rows(segments, row_counts),
            parents=parents,
        )


class PassOutput(NamedTuple):
    """What a forward pass says of its rows."""

    logits: Tensor
    """`[rows, vocabulary]` float32."""
    features: Tensor | None = None
    """`[layers, rows, hidden]` float32: hidden states after each layer of `feature_layers`, in their order, before any
    final norm. None if none were asked for."""


def last_rows(segments: list[Segment], row_counts: list[int]) -> list[int]:
    """Indices of the last tokens of each segment, as many as its count."""
    indices: list[int] = []
    end = 0
    for segment, count in zip(segments, row_counts, strict=True):
        end += segment.token_count
        indices.extend(range(end - count, end))
    return indices
