"""The two forms of an answer: completions and chat completions, each whole or in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from coordinator.http.logprobs import TokenText, chat_logprobs, completion_logprobs, prompt_logprobs
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of an output, or all of it."""

    text: str = ""
    tokens: Sequence[pb.GeneratedToken] = ()
    prompt_tokens: Sequence[pb.GeneratedToken] = ()
    """In the first piece alone, if they are wanted."""
    offset: int = 0
    """Where its text begins."""
    is_first: bool = True


class Names(NamedTuple):
    """What an answer calls itself."""

    id_prefix: str
    body: str
    chunk: str


class Form(Protocol):
    """How one endpoint lays out its answers."""

    @property
    def names(self) -> Names: ...

    @property
    def echo(self) -> bool:
        """Whether an output begins with its prompt."""
        ...

    def body(self, piece: Piece) -> dict[str, Any]:
        """A whole output, as part of a choice."""
        ...

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """A part of an output, as part of a choice."""
        ...


@dataclass(frozen=True, kw_only=True)
class CompletionForm:
    """/v1/completions"""

    token_text: TokenText
    has_logprobs: bool
    has_prompt_logprobs: bool
    echo: bool
    names = Names("cmpl", "text_completion", "text_completion")

    def body(self, piece: Piece) -> dict[str, Any]:
        part: dict[str, Any] = {"text": piece.text, "logprobs": None}
        tokens = [*piece.prompt_tokens, *piece.tokens] if self.echo else piece.tokens
        if self.has_logprobs and tokens:
            part["logprobs"] = completion_logprobs(tokens, self.token_text, piece.offset)
        if self.has_prompt_logprobs and piece.is_first:
            part["prompt_logprobs"] = prompt_logprobs(piece.prompt_tokens, self.token_text)
        return part

    chunk = body


@dataclass(frozen=True, kw_only=True)
class ChatForm:
    """/v1/chat/completions"""

    token_text: TokenText
    has_logprobs: bool
    has_prompt_logprobs: bool
    echo: bool = False
    names = Names("chatcmpl", "chat.completion", "chat.completion.chunk")

    def body(self, piece: Piece) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": piece.text, "refusal": None}, **self._logprobs(piece)}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": "assistant", "content": piece.text} if piece.is_first else {}
        if piece.text:
            delta["content"] = piece.text
        return {"delta": delta, **self._logprobs(piece)}

    def _logprobs(self, piece: Piece) -> dict[str, Any]:
        part: dict[str, Any] = {"logprobs": None}
        if self.has_logprobs and piece.tokens:
            part["logprobs"] = chat_logprobs(piece.tokens, self.token_text)
        if self.has_prompt_logprobs and piece.is_first:
            part["prompt_logprobs"] = prompt_logprobs(piece.prompt_tokens, self.token_text)
        return part
