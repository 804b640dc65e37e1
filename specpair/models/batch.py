"""What one forward pass computes: tokens of several sequences, packed into one row."""

from dataclasses import dataclass

from specpair.caches.holding import Segment


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Plain lists; the model runner turns them into tensors."""

    segments: list[Segment]
    token_ids: list[int]
    """Tokens of all segments, one after the other."""
    row_counts: list[int]
    """For each segment: of how many of its last tokens the logits are wanted."""

    @property
    def positions(self) -> list[int]:
        """Position of every token within its sequence."""
        return [position for s in self.segments for position in range(s.start, s.end)]

    @property
    def rows(self) -> list[int]:
        """Indices into `token_ids` of the tokens whose logits are wanted."""
        indices: list[int] = []
        end = 0
        for segment, count in zip(self.segments, self.row_counts, strict=True):
            end += segment.token_count
            indices.extend(range(end - count, end))
        return indices
