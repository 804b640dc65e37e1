"""One output: which committed tokens belong to it, their text, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.outputs.stop import StopStrings
from coordinator.outputs.text_stream import TextStream
from coordinator.requests.finish_reason import FinishReason
from coordinator.requests.request import GenerationRequest
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError

RESUMED_TAIL = 64
BYTES_OF_CHARACTER = 4
"""In UTF-8, at most; a token may be a single byte."""


def resumed_tail(stop_strings: Sequence[str]) -> int:
    """Number of resumed tokens to decode again: a character or a stop string may begin in them."""
    return RESUMED_TAIL + BYTES_OF_CHARACTER * max(map(len, stop_strings), default=0)


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What the output took of one round's tokens."""

    kept_count: int
    """Tokens that belong to the output; those after a stop do not."""
    text: str
    """Text that is now final."""


class Output:
    """One output of a request, fed with committed tokens only: a proposal never ends it.

    A stop token belongs to the tokens, not to the text. Nothing stops before min_tokens. Without a tokenizer the text
    stays empty.
    """

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer | None):
        self._request = request
        """Raises InvalidFieldError if the resumed tokens continue after the output's end."""
        resumed, tail = request.resumed_ids, resumed_tail(request.stop_strings)
        known, latest = resumed[:-tail], resumed[-tail:]
        self._stream = (
            None if tokenizer is None else TextStream(tokenizer, [*request.prompt_ids, *known], request.shown)
        )
        self._stops = StopStrings(request.stop_strings)
        self._stop_token_ids = frozenset(request.sampling.stop_token_ids)
        self.token_ids = list(known)
        self.finish_reason = None if request.max_tokens else FinishReason.LENGTH
        kept_count = self.commit(latest).kept_count  # the client already has their text
        if kept_count < len(latest):
            raise InvalidFieldError("resumed_token_ids", "continues after a stop, where the output ended")

    @property
    def new_token_count(self) -> int:
        """Tokens that this call generated, without the resumed ones."""
        return len(self.token_ids) - len(self._request.resumed_ids)

    @property
    def remaining_tokens(self) -> int:
        return self._request.max_tokens - len(self.token_ids)

    def commit(self, token_ids: Sequence[int]) -> Committed:
        """Takes tokens in order until the output ends."""
        pieces: list[str] = []
        kept_count = 0
        for token_id in token_ids:
            if self.finish_reason is not None:
                break
            pieces.append(self._take(token_id))
            kept_count += 1
        if self.finish_reason is not None:
            pieces.append(self._rest())
        return Committed(kept_count=kept_count, text="".join(pieces))

    def _take(self, token_id: int) -> str:
        min_tokens = self._request.sampling.min_tokens
        is_stop = token_id in self._stop_token_ids and len(self.token_ids) >= min_tokens
        self.token_ids.append(token_id)
        if is_stop:
            self.finish_reason = FinishReason.STOP
            return ""
        may_stop = len(self.token_ids) >= min_tokens
        text = "" if self._stream is None else self._stops.push(self._stream.push(token_id), may_stop=may_stop)
        if self._stops.is_stopped:
            self.finish_reason = FinishReason.STOP
        elif self.remaining_tokens <= 0:
            self.finish_reason = FinishReason.LENGTH
        return text

    def _rest(self) -> str:
        """The text that was held back, once no token can follow."""
        tail = "" if self._stream is None else self._stops.push(self._stream.flush())
        return tail + self._stops.flush()
