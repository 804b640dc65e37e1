"""Where each token begins in the text of its output."""

from collections.abc import Sequence

from coordinator.outputs.text_stream import TextStream
from coordinator.requests.tokenizer import Tokenizer


class TextOffsets:
    """Follows an output's tokens by the stream that its text came from.

    A character of several tokens begins where the first of them does: text of theirs comes with the last one, while a
    token by itself would have none.
    """

    def __init__(self, tokenizer: Tokenizer | None, context_ids: Sequence[int] = (), start: int = 0):
        """The text begins at `start`, behind tokens of which `context_ids` are the last ones."""
        self._stream = None if tokenizer is None else TextStream(tokenizer, context_ids)
        self._next = start

    def of(self, token_id: int) -> int:
        """The offset, in characters, of one more token."""
        offset = self._next
        if self._stream is not None:
            self._next += len(self._stream.push(token_id))
        return offset
