"""Why an output ended."""

from enum import StrEnum


class FinishReason(StrEnum):
    """By what an output came to its end."""

    STOP = "stop"
    LENGTH = "length"
