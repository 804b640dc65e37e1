"""Marks in a text that comes piece by piece."""


def begun_length(text: str, mark: str) -> int:
    """Length of the longest end of the text with which `mark` may begin, without being complete."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)


def split_end(text: str, kept: int) -> tuple[str, str]:
    """The text without its last `kept` characters, and these."""
    end = len(text) - kept
    return text[:end], text[end:]
