"""Marks and white space in a text that comes piece by piece."""

import re

from specpair.grammars.lark import FEW_SPACES, WHITE

_FEW_SPACES = re.compile(FEW_SPACES)


def begun_length(text: str, mark: str) -> int:
    """Length of the longest end of the text with which `mark` may begin, without being complete."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)


def split_end(text: str, kept: int) -> tuple[str, str]:
    """The text without its last `kept` characters, and these."""
    end = len(text) - kept
    return text[:end], text[end:]


def without_few_spaces(text: str) -> str:
    """The text without as much white space before it as grammars allow before a mark."""
    return _FEW_SPACES.sub("", text, count=1)


class TrailingSpace:
    """Holds back white space at the end of a text until it is known what follows. The time for a piece does not grow
    with what is held."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def push(self, text: str) -> str:
        """Adds text, and returns what ends with other characters than white space: all that stands before further
        text."""
        kept = text.rstrip(WHITE)
        if not kept:
            self._held.append(text)
            return ""
        before = self.take()
        self._held.append(text[len(kept) :])
        return before + kept

    def take(self) -> str:
        """What is held; nothing is held any more."""
        held, self._held = "".join(self._held), []
        return held
