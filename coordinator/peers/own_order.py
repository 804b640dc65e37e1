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
    """Without a proposal to judge: the tokens to give, each by a pass and a step of its own."""


NO_ORDER = OwnOrder()
