"""A call to a drafter and its proposal. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from specpair.options import Drafter
from specpair.speculation.count_row import CountRow
from specpair.speculation.outlook import Outlook
from specpair.speculation.trees.drawn_tree import Draw
from specpair.speculation.trees.token_tree import TokenTree

ANSWER_BYTES = 1024
DENSE_BYTES = 4
"""Of one probability."""
COUNT_BYTES = 8
"""Memory of a token and its count."""


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
    """Drafting stops once the drafter's confidence in the tokens so far is below this; 0 never stops."""
    max_tree_tokens: int = 0
    """Tokens of a tree at most, no deeper than `count`; 0 for a chain."""
    has_proposal: bool = False
    """The caller has the proposal already: it was prepared and sent."""
    is_plain: bool = False
    """Nothing is to be proposed: the target goes on without."""
    looks: bool = False
    """Whether work ahead will follow, which needs the outlooks of the rows."""


@dataclass(frozen=True, kw_only=True)
class AheadOrder:
    """What to prepare for the step after a call, checked for form."""

    max_outcomes: int
    count: int
    """Tokens to propose at most for each outcome."""
    min_confidence: float
    max_length: int
    """Longest that the sequence may become with a prepared proposal."""
    withholds: bool = False
    """Whether proposals are sent without their rows, which the answer to the call has."""


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A proposal: tokens and the distributions from which they were drawn. Under the coupled rule no rows are sent."""

    drafter: Drafter
    """The drafter that made it."""
    tokens: list[int]
    """May be fewer than requested, even none, if the drafter has nothing to propose."""
    tree: TokenTree | None = None
    """The tokens as a tree; None for a chain."""
    draws: tuple[Draw, ...] = ()
    """Of a tree that was drawn."""
    counts: list[CountRow]
    """One row for each token of a chain, unless the encoding is dense; for a tree those that were drawn from."""
    dense: list[Tensor]
    """One row `[vocabulary]` float32 for each token, if the encoding is dense."""
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the last token."""
    batch_size: int
    """Sequences in the largest forward pass; 0 if no model ran."""
    rollback_time: float = 0.0
    """Seconds that the cache took for the rollback."""
    outlooks: tuple[Outlook, ...] = ()
    """What else each row had to offer, if the drafter works ahead; also the row after the last token, if it was looked
    at."""
    beyond: tuple[CountRow, ...] = ()
    """That row, if rows are sent."""
    was_prepared: bool = False
    """Whether it was made, or begun, before the call."""
    guess_count: int = 0
    """Tokens that were guessed for the draft model, if it is accelerated."""
    accepted_guess_count: int = 0
    """Of those, the ones that it drew."""
    pass_count: int = 0
    """Its forward passes, if it is accelerated."""

    @property
    def has_rows(self) -> bool:
        """Whether distributions are sent that the tokens do not say themselves."""
        return bool(self.dense) or not all(row.is_one_hot for row in self.counts)

    @property
    def byte_count(self) -> int:
        """Approximate memory in bytes."""
        sparse = sum(COUNT_BYTES * len(row.token_ids) for row in (*self.counts, *self.beyond))
        return ANSWER_BYTES + sparse + sum(row.nbytes for row in self.dense)


def nothing_drafted(drafter: Drafter) -> Drafted:
    """The answer to a call for which nothing is proposed."""
    return Drafted(drafter=drafter, tokens=[], counts=[], dense=[], queue_time=0.0, compute_time=0.0, batch_size=0)


@dataclass(frozen=True, kw_only=True)
class PreparedBlock:
    """A proposal for a step that was not asked for yet, for one outcome of the step before."""

    sequence_id: str
    step: int
    base_length: int
    """Committed tokens before the proposal of the step before."""
    accepted_count: int
    next_token_id: int
    drafted: Drafted
    withholds: bool
    """Whether it is sent without its rows."""
    is_current: Callable[[], bool]
    """Whether it may still be of use."""


Deliver = Callable[[PreparedBlock], None]
"""Sends a prepared proposal to the caller, if possible."""
