"""What working ahead gave a round."""

from enum import StrEnum


class AheadOutcome(StrEnum):
    """Where the proposal of a round came from, if the draft was working ahead."""

    HIT = "hit"
    """It was there when the verdict came."""
    LATE = "late"
    """It was being made when the verdict came."""
    MISS = "miss"
    """The draft had prepared others, and was asked."""
    PLAIN = "plain"
    """It was not there in time, and the target went on without one."""
