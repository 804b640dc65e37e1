"""Decodes token ids to text piece by piece, in whole characters."""

from collections.abc import Mapping, Sequence

from coordinator.requests.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT_LENGTH = 6
"""Tokens of the prompt that are decoded with the output: decoders drop a leading space."""
MOST_HELD = 8
"""Tokens that are decoded once more with the next one because they have no whole text yet. More would be decoded again
and again: an output of broken characters alone would take time with the square of its length."""
CHARACTER_TOKENS = 4
"""A character has at most as many bytes, and so tokens."""


class TextStream:
    """Decodes a growing list of tokens.

    The pieces add up to the text of all tokens as a continuation of `context_ids`, without special tokens, but those in
    `shown` with the text there. A piece ends where a character ends: incomplete bytes are held back, unless many tokens
    in a row complete none.
    """

    def __init__(self, tokenizer: Tokenizer, context_ids: Sequence[int] = (), shown: Mapping[int, str] | None = None):
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._window = list(context_ids)[-CONTEXT_LENGTH:]
        """Tokens whose text was returned last, then those whose text is still to come."""
        self._broken: list[int] = []
        """The first tokens of a stretch without a whole character, of which text was returned all the same. They stay
        in the window: some decoders show all bytes of a stretch as broken if one is."""
        self._given_count = len(self._window)
        self._given = tokenizer.decode(self._window)

    def push(self, token_id: int) -> str:
        """Adds a token and returns the text that is now final."""
        if token_id in self._tokenizer.special_ids:
            return self.flush() + self._shown[token_id] if token_id in self._shown else ""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) or text == self._given:
            return self._relieve(text) if len(self._window) - self._given_count > MOST_HELD else ""
        piece = self._beyond_given(text)
        self._broken = []
        del self._window[: self._given_count]
        self._given_count = len(self._window)
        # Nearly always it is one token, most of them frequent ones, and decoding takes longer than all else here.
        is_one = self._given_count == 1
        self._given = self._tokenizer.first_text(token_id) if is_one else self._tokenizer.decode(self._window)
        return piece

    def flush(self) -> str:
        """The rest: replacement characters for bytes that never became a character."""
        if self._given_count == len(self._window):
            return ""
        text = self._tokenizer.decode(self._window)
        piece = self._beyond_given(text)
        self._given = text
        self._given_count = len(self._window)
        return piece

    def _relieve(self, text: str) -> str:
        """Shortens the window, whose text this is: forgets tokens without a text, or gives out all but the last
        character, which may still become a whole one."""
        if not text.endswith(REPLACEMENT):
            del self._window[self._given_count :]
            return ""
        piece = self._beyond_given(text)
        self._broken = self._broken or self._window[self._given_count :][:CHARACTER_TOKENS]
        self._window = [*self._broken, *self._window[-CHARACTER_TOKENS:]]
        self._given_count, self._given = len(self._broken), self._tokenizer.decode(self._window)
        if self._given.endswith(REPLACEMENT):
            piece, self._given = piece[:-1], self._given[:-1]
        return piece

    def _beyond_given(self, text: str) -> str:
        """The part of the window's text that is new.

        If the prompt ended within a character, its replacement character has now become the whole character.
        """
        if text.startswith(self._given):
            return text[len(self._given) :]
        pairs = enumerate(zip(self._given, text, strict=False))
        return text[next((index for index, (old, new) in pairs if old != new), len(text)) :]
