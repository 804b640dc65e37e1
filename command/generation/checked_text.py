"""Text from the terminal."""

from specpair.errors import InvalidFieldError


def checked_text(field: str, data: bytes) -> str:
    """The text of bytes from the terminal. Raises InvalidFieldError if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidFieldError(field, f"is not valid UTF-8 at byte {error.start}") from None
