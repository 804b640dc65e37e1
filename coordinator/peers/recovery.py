"""Kinds of recoveries."""

from enum import StrEnum


class Recovery(StrEnum):
    """How the coordinator recovered from a failure."""

    REPEATED = "repeated"
    """The call was repeated."""
    REOPENED = "reopened"
    """A sequence that an instance had lost was reopened there."""
    MOVED = "moved"
    """The sequence moved to another instance."""
