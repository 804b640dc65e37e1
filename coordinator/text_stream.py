"""Token ids to text, piece by piece, without ever showing half a character."""

from collections.abc import Sequence

from coordinator.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT_LENGTH = 6
"""Tokens of the prompt that are decoded with the output: decoders drop a space at the beginning of what they get."""


class TextStream:
    """Decodes a growing list of tokens.

    The pieces add up to the decoding of all tokens, read as a continuation of `context_ids`, special tokens
    left out. A piece ends where a character ends: bytes that may still become one are held back.
    """

    def __init__(self, tokenizer: Tokenizer, context_ids: Sequence[int] = ()):
        self._tokenizer = tokenizer
        self._window = list(context_ids)[-CONTEXT_LENGTH:]
        """Tokens whose text was given out last, then those whose text is still to come."""
        self._given_count = len(self._window)
        self._given = self._context_text()

    def push(self, token_id: int) -> str:
        """The text that has become certain with one more token."""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) or len(text) <= len(self._given):
            return ""
        piece = text[len(self._given) :]
        del self._window[: self._given_count]
        self._given_count = len(self._window)
        self._given = self._tokenizer.decode(self._window)
        return piece

    def flush(self) -> str:
        """The rest: replacement characters for bytes that never became a character."""
        if self._given_count == len(self._window):
            return ""
        text = self._tokenizer.decode(self._window)
        piece = text[len(self._given) :]
        self._given = text
        self._given_count = len(self._window)
        return piece

    def _context_text(self) -> str:
        """Without the beginning of a character that the output may complete."""
        return self._tokenizer.decode(self._window).rstrip(REPLACEMENT)
