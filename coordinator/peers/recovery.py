"""What becomes of a failure."""

from enum import StrEnum


class Recovery(StrEnum):
    """How a failure was made good."""

    REPEATED = "repeated"
    """The call was made again."""
    REOPENED = "reopened"
    """A sequence that an instance had lost was opened there again."""
    MOVED = "moved"
    """It went to another instance."""
