"""What the target itself is asked to propose with a verdict."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnOrder:
    """For the round after the verdict's."""

    count: int = 0
    """Tokens at most; 0 for no proposal."""
    min_confidence: float = 0.0
    """It ends with the token after which its tokens together have a smaller probability; 0 if it does not."""


NO_ORDER = OwnOrder()
