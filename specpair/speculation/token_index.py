"""An index of token positions among the last tokens of a history, for drafters that look for repetitions.

It follows a history that grows and shrinks at its end; an update costs only the tokens added or removed. A place is an
index into `tokens`, which may begin later than the history, so memory is bounded for any length. What an encoder reads
comes before the history, and is found like it: summaries and corrections repeat much of their source.
"""

from collections.abc import Sequence

WINDOW = 8192
"""Number of last tokens that can be looked up. Up to twice as many are kept, so that the index is rarely rebuilt."""

SLACK = 256
"""Additional tokens before the window, so that a whole window is left after a small rollback."""


class TokenIndex:
    """An index over the last tokens of one history, and of what comes before it."""

    def __init__(self, source: Sequence[int] = ()) -> None:
        """`source` comes before the history, and is never dropped from its end."""
        self.tokens: list[int] = []
        """The last tokens of source and history: at least WINDOW of them, or all."""
        self._source = source
        self._start = 0
        self._places: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Length of source and history, including tokens before the index."""
        return self._start + len(self.tokens)

    def places(self, token: int) -> Sequence[int]:
        """Ascending places of the token in `tokens`. Do not keep the result."""
        return self._places.get(token, ())

    def follow(self, history: Sequence[int], length: int) -> None:
        """Adds the tokens up to `length` of a history, of which it has the first ones already."""
        end, before = len(self._source) + length, len(self._source)
        if not self.tokens or end - self._start > 2 * WINDOW:
            self._clear()
            self._start = max(0, end - WINDOW - SLACK)
        start = len(self)
        for token in (*self._source[start:], *history[max(start - before, 0) : length]):
            self._places.setdefault(token, []).append(len(self.tokens))
            self.tokens.append(token)

    def truncate(self, length: int) -> None:
        """Drops the history's tokens from `length` on, if any; drops all tokens if no whole window would be left."""
        end = len(self._source) + length
        if end < len(self) and 0 < self._start > end - WINDOW:
            self._clear()
        while len(self) > end:
            token = self.tokens.pop()
            places = self._places[token]
            places.pop()
            if not places:
                del self._places[token]

    def _clear(self) -> None:
        self.tokens.clear()
        self._places.clear()
        self._start = 0
