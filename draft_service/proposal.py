"""What is asked of a drafter and what it answers: plain data."""

from dataclasses import dataclass

from torch import Tensor

from specpair.options import Drafter
from specpair.speculation.count_row import CountRow

ANSWER_BYTES = 1024
COUNT_BYTES = 8
"""Of a token and its count."""


@dataclass(frozen=True, kw_only=True)
class ProposeCall:
    """A call, checked for form."""

    sequence_id: str
    step: int
    base_length: int
    appended: list[int]
    count: int
    """Tokens to propose at most."""
    min_confidence: float = 0.0
    """No token is drawn behind tokens that the drafter believes in less; 0 never stops."""


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A proposal: the tokens and the distributions they were drawn from, which under the coupled rule stay here."""

    drafter: Drafter
    """What made it."""
    tokens: list[int]
    """Fewer than were asked for, even none, where the drafter does not know how to go on."""
    counts: list[CountRow]
    """One row for each token, unless they are dense."""
    dense: list[Tensor]
    """One row `[vocabulary]` float32 for each token, if a model made them and they travel dense."""
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the last token."""
    batch_size: int
    """Sequences in the largest forward pass; 0 if no model ran."""
    rollback_time: float = 0.0
    """Seconds that the cache took to drop what was rolled back."""

    @property
    def byte_count(self) -> int:
        """About as much memory as it takes."""
        sparse = sum(COUNT_BYTES * len(row.token_ids) for row in self.counts)
        return ANSWER_BYTES + sparse + sum(row.nbytes for row in self.dense)
