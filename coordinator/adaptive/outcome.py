"""What a round tells about acceptance and cost."""

from typing import NamedTuple


class RoundOutcome(NamedTuple):
    """One finished round. Times are in microseconds.

    It holds how many tokens were proposed and accepted, never which: nothing that is decided from it can depend on a
    token that was dropped (rule 8 of exactness in the design).
    """

    asked: int
    """Tokens that the draft was asked for; 0 in a plain round."""
    drafted: int
    """Tokens that it proposed: fewer than asked where it stopped, 0 where it knew nothing."""
    accepted: int
    elapsed: float
    """From the end of the round before to the end of this one."""
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
