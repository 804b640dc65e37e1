"""The two forms of an answer: completions and chat completions, each whole or in chunks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.json_pieces import Rows
from coordinator.http.logprobs import TokenBytes, TokenText, chat_logprobs, completion_logprobs, prompt_logprobs
from coordinator.http.output_reader import OutputReader
from coordinator.http.text_offsets import TextOffsets
from coordinator.requests.reasoning import Reasoning
from coordinator.requests.tokenizer import Tokenizer
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of an output, or all of it."""

    text: str = ""
    tokens: Sequence[pb.GeneratedToken] = ()
    prompt_tokens: Sequence[pb.GeneratedToken] = ()
    """In the first piece only, if requested."""
    offset_of: Callable[[int], int] = lambda token_id: 0
    """Returns the offset of each token in the text; to be called once for each, in order."""
    index: int = 0
    """Of the output."""
    is_first: bool = True
    is_last: bool = True
    is_first_of_prompt: bool = True
    """Whether it belongs to the first output of its prompt."""


class Names(NamedTuple):
    """The names in an answer."""

    id_prefix: str
    body: str
    chunk: str


class Form(Protocol):
    """How one endpoint lays out its answers."""

    @property
    def names(self) -> Names: ...

    @property
    def echo(self) -> bool:
        """Whether each output begins with its prompt."""
        ...

    @property
    def reasoning(self) -> Reasoning | None:
        """What comes before the answers; None if all text is the answer."""
        ...

    @property
    def shown(self) -> Mapping[int, str]:
        """Special tokens that the outputs show, with their texts."""
        ...

    def body(self, piece: Piece) -> dict[str, Any]:
        """A whole output, as part of a choice."""
        ...

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """A part of an output, as part of a choice."""
        ...

    def finish_reason(self, index: int, reason: str) -> str:
        """Why the output of this index ended, `reason` being stop or length; asked after its last piece."""
        ...


@dataclass(frozen=True, kw_only=True)
class CompletionForm:
    """/v1/completions"""

    tokenizer: Tokenizer | None
    token_text: TokenText
    has_logprobs: bool
    has_prompt_logprobs: bool
    echo: bool
    reasoning = None
    shown = MappingProxyType[int, str]({})
    names = Names("cmpl", "text_completion", "text_completion")

    def body(self, piece: Piece) -> dict[str, Any]:
        part: dict[str, Any] = {"text": piece.text, "logprobs": None}
        tokens = [*piece.prompt_tokens, *piece.tokens] if self.echo else piece.tokens
        if self.has_logprobs and tokens:
            part["logprobs"] = completion_logprobs(tokens, self.token_text, self._offsets(piece))
        if self.has_prompt_logprobs and piece.is_first:
            part["prompt_logprobs"] = _prompt_logprobs(piece, self.token_text)
        return part

    chunk = body

    def finish_reason(self, index: int, reason: str) -> str:
        return reason

    def _offsets(self, piece: Piece) -> Iterator[int]:
        if self.echo:
            prompt = TextOffsets(self.tokenizer)
            yield from (prompt.of(token.id) for token in piece.prompt_tokens)
        yield from (piece.offset_of(token.id) for token in piece.tokens)


@dataclass(frozen=True, kw_only=True)
class ChatForm:
    """/v1/chat/completions"""

    token_text: TokenText
    token_bytes: TokenBytes
    has_logprobs: bool
    has_prompt_logprobs: bool
    parts: AnswerParts
    """What is taken out of the text."""
    readers: dict[int, OutputReader] = field(default_factory=dict)
    """By output."""
    echo: bool = False
    names = Names("chatcmpl", "chat.completion", "chat.completion.chunk")

    @property
    def reasoning(self) -> Reasoning | None:
        return self.parts.reasoning

    @property
    def shown(self) -> Mapping[int, str]:
        return self.parts.shown

    def body(self, piece: Piece) -> dict[str, Any]:
        said = self._reader(piece.index).push(piece.text, is_last=True)
        message: dict[str, Any] = {"role": "assistant", "content": said.text or self._no_content, "refusal": None}
        if self.reasoning is not None:
            message |= _reasoning(said.reasoning or None)
        if said.calls:
            message["tool_calls"] = [call.document(is_delta=False) for call in said.calls]
        return {"message": message, **self._logprobs(piece)}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        said = self._reader(piece.index).push(piece.text, is_last=piece.is_last)
        delta: dict[str, Any] = (
            {"role": "assistant", "content": said.text or self._no_content} if piece.is_first else {}
        )
        if said.reasoning:
            delta |= _reasoning(said.reasoning)
        if said.text:
            delta["content"] = said.text
        if said.calls:
            delta["tool_calls"] = [call.document(is_delta=True) for call in said.calls]
        return {"delta": delta, **self._logprobs(piece)}

    def finish_reason(self, index: int, reason: str) -> str:
        return "tool_calls" if reason == "stop" and self._reader(index).has_whole_call else reason

    @property
    def _no_content(self) -> str | None:
        """The content of an answer that has none: null where something else may stand in its place."""
        return None if self.parts.calling is not None or self.reasoning is not None else ""

    def _reader(self, index: int) -> OutputReader:
        if index not in self.readers:
            self.readers[index] = self.parts.reader()
        return self.readers[index]

    def _logprobs(self, piece: Piece) -> dict[str, Any]:
        part: dict[str, Any] = {"logprobs": None}
        if self.has_logprobs and piece.tokens:
            part["logprobs"] = chat_logprobs(piece.tokens, self.token_text, self.token_bytes)
        if self.has_prompt_logprobs and piece.is_first:
            part["prompt_logprobs"] = _prompt_logprobs(piece, self.token_text)
        return part


def _reasoning(text: str | None) -> dict[str, str | None]:
    """The reasoning by both of its names: clients of DeepSeek, SGLang and the older vLLM know one, those of the newer
    vLLM and of OpenRouter the other."""
    return {"reasoning_content": text, "reasoning": text}


def _prompt_logprobs(piece: Piece, token_text: TokenText) -> list[dict[str, Any] | None] | Rows | None:
    """Only in the first output of a prompt: they are long, and the same for all its outputs."""
    return prompt_logprobs(piece.prompt_tokens, token_text) if piece.is_first_of_prompt else None
