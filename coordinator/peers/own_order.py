"""What the target itself is asked for with a verdict: a proposal, or a run of tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnOrder:
    """Of one call."""

    count: int = 0
    """Tokens to propose for the round after the verdict's, at most; 0 for no proposal."""
    min_confidence: float = 0.0
    """It ends with the token after which its tokens together have a smaller probability; 0 if it does not."""
    run_length: int = 1
    """Without a proposal to judge: the tokens to give, at most, each by a pass and a step of its own."""
    run_seconds: float = 0.0
    """How long they may take."""


NO_ORDER = OwnOrder()
LONGEST_RUN = 16
"""Tokens. More would save hardly any more calls, and a pass that fails costs the whole run."""


def run_within(seconds: float, left: int) -> OwnOrder:
    """The order for a run of an output with `left` tokens left. Half of them at most: the run may end early, and the
    next one, which is ordered before that is known, has to have room."""
    length = min(LONGEST_RUN, (left + 1) // 2)
    return OwnOrder(run_length=length, run_seconds=seconds) if seconds and length > 1 else NO_ORDER
