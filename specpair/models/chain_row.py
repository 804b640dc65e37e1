"""A proposal that a runner draws whole, and what was drawn. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specpair.caches.holding import Holding
from specpair.options import SamplingOptions
from specpair.speculation.count_row import CountRow
from specpair.speculation.outlook import Outlook
from specpair.speculation.sampling import SamplingUse

TOP_K_STEPS = (0, 64, 1024)
"""What top_k is rounded up to; beyond the last it is the vocabulary. Clients choose top_k, and each step is captured
anew."""


@dataclass(frozen=True, kw_only=True)
class ChainRow:
    """One proposal to draw, or the rest of one."""

    holding: Holding
    """With room for all of its tokens but the last; a head's are behind what it holds."""
    position: int
    """Of the first token to draw."""
    count: int
    """Tokens to draw."""
    sampling: SamplingOptions
    is_coupled: bool
    """Whether its tokens are chosen with shared noise, and no distributions are sent."""
    min_confidence: float
    """It may end with the token after which `confidence` is below this; 0 if it may not. What comes after that is not
    used, whether or not it is drawn."""
    confidence: float
    """Product of the probabilities at temperature 1 of the tokens before."""
    vocab_size: int
    """Ids from here on are never drawn."""
    bits: np.ndarray
    """53 random bits for each token: int64 `[count]`; empty if it needs none."""
    looks: bool
    """Whether the outlooks of its rows are wanted. A row of counts needs none: it says as much itself."""
    is_awaited: bool
    """Whether somebody waits for it."""
    rank: int = 0
    """Place in the outlook of the first row of the token that is taken from it; 0: the drawn one. If there is none,
    nothing is drawn. Not with a `min_confidence`."""
    race_step: int | None = None
    """The first token is not drawn: it is the one of the `rank` in the race that draws the target's own token of this
    step. Its row of counts is empty."""

    @property
    def is_weighed(self) -> bool:
        """Whether the probabilities of its tokens are wanted."""
        return self.min_confidence > 0.0


class DrawnChain(NamedTuple):
    """What was drawn for one proposal. Lists that are not empty are as long as the proposal, or as it could become."""

    tokens: list[int]
    """Up to the first row that could not be sampled, or to where drawing was stopped."""
    counts: list[CountRow]
    """From which the tokens were drawn; empty if they were chosen."""
    shares: list[float]
    """Their probabilities at temperature 1, if they were wanted."""
    outlooks: list[Outlook]
    """Of the rows that they were drawn from, if they were wanted; of a first token that was not drawn its row's."""
    is_over: bool
    """Whether there is no more to draw: all was drawn, the draft was too unsure, or a row could not be sampled.
    Otherwise drawing was stopped, and the rest follows."""


class ChainKind(NamedTuple):
    """Which operations the rows of a batch need."""

    use: SamplingUse
    draws: bool
    """Whether any is drawn from counts."""
    races: bool
    """Whether any is chosen by shared noise."""
    masks: bool
    """Whether any may not use the whole vocabulary."""
    weighs: bool

    @classmethod
    def of(cls, rows: Sequence[ChainRow], vocab_size: int) -> "ChainKind":
        """Temperatures and min-p are cheap and always applied, and top_k is rounded up, so that kinds are few."""
        use = rounded_use([row.sampling for row in rows], vocab_size)
        drawn = [row for row in rows if not row.sampling.is_greedy]
        return cls(
            use=use,
            draws=any(not row.is_coupled for row in drawn),
            races=any(row.is_coupled for row in drawn),
            masks=any(row.vocab_size < vocab_size for row in rows),
            weighs=any(row.is_weighed for row in rows),
        )

    @classmethod
    def usual(cls, vocab_size: int) -> "list[ChainKind]":
        """Those of proposals without options: greedy, where the draft may end them or not; drawn from counts; chosen by
        shared noise."""
        greedy = rounded_use([SamplingOptions(temperature=0.0)], vocab_size)
        sampled = rounded_use([SamplingOptions()], vocab_size)
        plain = cls(use=greedy, draws=False, races=False, masks=False, weighs=False)
        return [
            plain,
            plain._replace(weighs=True),
            plain._replace(use=sampled, draws=True),
            plain._replace(use=sampled, races=True),
        ]


def rounded_use(options: Sequence[SamplingOptions], vocab_size: int) -> SamplingUse:
    """Which options are used. Some count as used by all, and top_k is rounded up, so that kinds are few."""
    use = SamplingUse.of(options)
    if use.all_greedy:
        return use
    top_k = next((step for step in TOP_K_STEPS if use.largest_top_k <= step), vocab_size)
    return use._replace(any_greedy=True, scales=True, cuts_min_p=True, largest_top_k=min(top_k, vocab_size))
