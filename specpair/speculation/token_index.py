"""Where each token stands among the last ones of a history: what drafters by repetition look things up in.

It follows a history that grows and shrinks at its end, at the cost of the tokens that come and go. Tokens are named by
their place in `tokens`, which begins somewhere in the history: memory is bounded, whatever the history's length.
"""

from collections.abc import Sequence

WINDOW = 8192
"""Last tokens of a history that can be looked up. Up to twice as many are kept, so that seldom any must be dropped."""

SLACK = 256
"""Tokens before the window that are taken in with it, so that a small rollback finds a whole window still."""


class TokenIndex:
    """An index over the last tokens of one history."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """The last tokens of the history: at least WINDOW of them, or all."""
        self._start = 0
        self._places: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Tokens of the history, those before the index included."""
        return self._start + len(self.tokens)

    def places(self, token: int) -> Sequence[int]:
        """Where the token stands in `tokens`, ascending; not to be kept."""
        return self._places.get(token, ())

    def follow(self, history: Sequence[int], length: int) -> None:
        """Takes in the tokens up to `length` of a history whose tokens below `len(self)` it knows."""
        if not self.tokens or length - self._start > 2 * WINDOW:
            self._clear()
            self._start = max(0, length - WINDOW - SLACK)
        for token in history[len(self) : length]:
            self._places.setdefault(token, []).append(len(self.tokens))
            self.tokens.append(token)

    def truncate(self, length: int) -> None:
        """Forgets the tokens from `length` on, if there are any; all of them if no whole window would be left."""
        if length < len(self) and 0 < self._start > length - WINDOW:
            self._clear()
        while len(self) > length:
            token = self.tokens.pop()
            places = self._places[token]
            places.pop()
            if not places:
                del self._places[token]

    def _clear(self) -> None:
        self.tokens.clear()
        self._places.clear()
        self._start = 0
