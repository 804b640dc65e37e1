"""The offset of each token in the text of its output."""

from collections.abc import Sequence

from coordinator.outputs.text_stream import TextStream
from coordinator.requests.tokenizer import Tokenizer


class TextOffsets:
    """Decodes an output's tokens with a TextStream, as its text was made.

    The tokens of one character all have its offset: its text comes with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer | None, context_ids: Sequence[int] = (), start: int = 0):
        """The text begins at offset `start`, after tokens that end with `context_ids`."""
        self._stream = None if tokenizer is None else TextStream(tokenizer, context_ids)
        self._next = start

    def of(self, token_id: int) -> int:
        """The offset, in characters, of one more token."""
        offset = self._next
        if self._stream is not None:
            self._next += len(self._stream.push(token_id))
        return offset
