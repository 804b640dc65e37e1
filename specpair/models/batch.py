"""Input and output of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from torch import Tensor

from specpair.caches.attention import split_parents, tree_positions
from specpair.caches.holding import Segment
from specpair.sequences.encoder_input import EncoderInput


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens of several sequences, packed into one row. Plain lists; the runner turns them into tensors."""

    segments: list[Segment]
    """The sequences' segments, in the order of their tokens."""
    token_ids: list[int]
    positions: list[int]
    """Position of each token in its sequence."""
    rows: list[int]
    """Ascending indices of the tokens whose logits are needed."""
    parents: list[int | None] | None = None
    """For each token the index of its parent, or None if it follows the cached tokens. None if all segments are
    chains."""
    feature_layers: tuple[int, ...] = ()
    """Decoder layers whose hidden states are requested."""
    has_all_features: bool = False
    """Whether they are requested of all tokens, and not only of the rows."""
    encoder_inputs: list[EncoderInput] = field(default_factory=list)
    """What the encoder reads for each segment; empty for a model without one."""

    @property
    def feature_rows(self) -> Sequence[int]:
        """Ascending indices of the tokens whose hidden states are requested."""
        return range(len(self.token_ids)) if self.has_all_features else self.rows

    @classmethod
    def of_chains(
        cls,
        segments: list[Segment],
        token_ids: list[int],
        row_counts: list[int],
        feature_layers: tuple[int, ...] = (),
        encoder_inputs: Sequence[EncoderInput] = (),
    ) -> Self:
        """A batch in which each token follows the previous one; the rows are the last tokens of each segment."""
        positions = [position for s in segments for position in range(s.start, s.end)]
        assert len(token_ids) == len(positions), "a native runner would read and write beyond its rows"
        return cls(
            segments=segments,
            token_ids=token_ids,
            positions=positions,
            rows=last_rows(segments, row_counts),
            feature_layers=feature_layers,
            encoder_inputs=list(encoder_inputs),
        )

    @classmethod
    def of_trees(
        cls,
        segments: list[Segment],
        token_ids: list[int],
        row_counts: list[int],
        parents: list[int | None],
        feature_layers: tuple[int, ...] = (),
        encoder_inputs: Sequence[EncoderInput] = (),
    ) -> Self:
        """A batch in which segments may branch; the rows are the last tokens of each segment."""
        split = split_parents(segments, parents)
        return cls(
            segments=segments,
            token_ids=token_ids,
            positions=[p for s, own in zip(segments, split, strict=True) for p in tree_positions(s.start, own)],
            rows=last_rows(segments, row_counts),
            parents=parents,
            feature_layers=feature_layers,
            encoder_inputs=list(encoder_inputs),
        )


class PassOutput(NamedTuple):
    """The output of a forward pass for its rows."""

    logits: Tensor
    """`[rows, vocabulary]` float32."""
    features: Tensor | None = None
    """`[layers, feature rows, hidden]` float32: hidden states after each layer of `feature_layers`, in their order,
    before any final norm. None if not requested."""


def last_rows(segments: list[Segment], row_counts: list[int]) -> list[int]:
    """Indices of the last tokens of each segment, as many as its count."""
    indices: list[int] = []
    end = 0
    for segment, count in zip(segments, row_counts, strict=True):
        end += segment.token_count
        indices.extend(range(end - count, end))
    return indices
