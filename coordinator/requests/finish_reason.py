"""Why an output ended."""

from enum import StrEnum


class FinishReason(StrEnum):
    """Why an output ended."""

    STOP = "stop"
    LENGTH = "length"
