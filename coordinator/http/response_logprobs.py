"""Logprobs in the text of a response."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.http.json_pieces import Rows
from coordinator.http.logprobs import TokenBytes, TokenText, token_logprobs
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True)
class ResponseLogprobs:
    """Lays out the logprobs of tokens."""

    token_text: TokenText
    token_bytes: TokenBytes

    def of(self, tokens: Sequence[pb.GeneratedToken]) -> list[dict[str, Any]] | Rows:
        """An entry for each token, as in chat; but `bytes` that nobody knows are none, since null is not allowed."""
        return token_logprobs(tokens, self.token_text, lambda token_id: self.token_bytes(token_id) or b"")
