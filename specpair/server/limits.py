"""Limits that hold before a request is looked at any closer: sizes cost time and memory by themselves."""

from specpair.errors import InvalidFieldError

MAX_SEQUENCE_ID_LENGTH = 128


def check_sequence_id(field: str, value: str) -> str:
    """The id, or InvalidFieldError unless it is 1 to 128 printable characters."""
    if not 1 <= len(value) <= MAX_SEQUENCE_ID_LENGTH or not value.isprintable():
        raise InvalidFieldError(
            field, f"must be 1 to {MAX_SEQUENCE_ID_LENGTH} printable characters", limit=MAX_SEQUENCE_ID_LENGTH
        )
    return value
