"""What a round tells about acceptance and cost."""

from typing import NamedTuple


class RoundOutcome(NamedTuple):
    """One finished round. Times are in any one unit.

    It holds how many tokens were proposed and accepted, and times, never which tokens. How many may depend on a token
    that was dropped, but the next round's noise does not: it is drawn anew for each step, so the length of a block,
    chosen before, tells nothing of its tokens (rule 8 of exactness in the design). Under the coupled rule noise stays,
    and the output does not depend on lengths.
    """

    asked: int
    """Tokens that the draft was asked for; 0 in a plain round."""
    drafted: int
    """Tokens that it proposed: fewer than asked where it stopped, 0 where it knew nothing."""
    accepted: int
    elapsed: float
    """From the end of the round before to the end of this one, without what its client made it wait."""
    period: float
    """The same with that."""
    draft_elapsed: float
    """From the call to the draft to its answer; 0 without one."""
    draft_compute: float
    verify_compute: float
    batch_token_count: int
    """Tokens in the target's forward pass, those of other outputs included."""
    draft_company: float = 0.0
    """Mean number of outputs that waited for the draft while this one was verified."""
    is_usual: bool = True
    """Whether it says what such a round costs: not if a sequence was opened in it, or a call failed."""
