"""The prompt of a request: its token ids, from text, chat or ids, and its text."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import ModelInfo
from specpair.options import check_range
from specpair.v1 import coordinator_service_pb2 as pb

MAX_CHAT_MESSAGES = 4096
MAX_TOOLS = 128
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class PromptReader:
    """Reads prompts that fit the target. Texts are tokenized in another thread."""

    target: ModelInfo
    tokenizer: Tokenizer | None

    async def read(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        """The prompt's tokens. Raises InvalidFieldError, PromptTooLongError, NotSupportedError."""
        kind = message.WhichOneof("prompt")
        encoder = self.target.encoder_decoder
        if kind is None and encoder is not None:
            return (encoder.decoder_start_token_id,)
        if kind is None:
            raise InvalidFieldError("prompt", "is missing; set text, token_ids or chat")
        prompt_ids = (
            self.checked("token_ids", message.token_ids.ids) if kind == "token_ids" else await self._encode(message)
        )
        if not prompt_ids:
            raise InvalidFieldError("prompt", "holds no token; it must hold at least 1", limit=1)
        if len(prompt_ids) >= self.target.max_model_len:
            raise PromptTooLongError(len(prompt_ids), self.target.max_model_len - 1)
        return prompt_ids

    async def text(self, message: pb.GenerateTokensRequest, prompt_ids: Sequence[int]) -> str:
        """The prompt as text: as given, or decoded from its tokens; empty without a tokenizer."""
        if message.WhichOneof("prompt") == "text":
            return message.text
        return "" if self.tokenizer is None else await asyncio.to_thread(self.tokenizer.decode, prompt_ids)

    async def _encode(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        kind = message.WhichOneof("prompt")
        if self.tokenizer is None:
            raise NotSupportedError(f"{kind}: the target has no tokenizer; send token_ids")
        if kind == "text":
            self._check_characters("text", len(message.text))
            return tuple(await asyncio.to_thread(self.tokenizer.encode, message.text))
        messages = _read_chat(message.chat.messages)
        self._check_characters("chat", sum(map(_characters, message.chat.messages)) + sum(map(len, message.chat.tools)))
        tools = _read_tools(message.chat.tools)
        return tuple(await asyncio.to_thread(self.tokenizer.encode_chat, messages, tools))

    def _check_characters(self, field: str, length: int) -> None:
        """Refuses a text that cannot fit, whatever its tokens are, before the work of tokenizing it."""
        assert self.tokenizer is not None
        limit = self.target.max_model_len * self.tokenizer.longest_token
        if length > limit:
            raise InvalidFieldError(field, f"has {length} characters; at most {limit} can fit the model", limit=limit)

    def checked(self, field: str, token_ids: Sequence[int]) -> tuple[int, ...]:
        """A copy of the tokens, all in the target's vocabulary. Raises InvalidFieldError, PromptTooLongError."""
        if len(token_ids) >= self.target.max_model_len:  # before they are copied
            raise PromptTooLongError(len(token_ids), self.target.max_model_len - 1)
        if token_ids and (worst := max(token_ids)) >= self.target.vocab_size:
            raise InvalidFieldError(
                field,
                f"holds {worst}; ids are below {self.target.vocab_size}",
                limit=self.target.vocab_size - 1,
            )
        return tuple(token_ids)


def _characters(entry: pb.ChatMessage) -> int:
    return len(entry.content) + sum(len(call.name) + len(call.arguments) for call in entry.tool_calls)


def _read_chat(messages: Sequence[pb.ChatMessage]) -> list[dict[str, Any]]:
    check_range("chat.messages count", len(messages), 1, MAX_CHAT_MESSAGES)
    for index, entry in enumerate(messages):
        if entry.role not in ROLES:
            raise InvalidFieldError(f"chat.messages[{index}].role", f"is {entry.role!r}; it must be one of {ROLES}")
    return [_read_message(entry) for entry in messages]


def _read_message(entry: pb.ChatMessage) -> dict[str, Any]:
    """The message as chat templates of Hugging Face models expect it."""
    read: dict[str, Any] = {"role": entry.role, "content": entry.content}
    if entry.tool_calls:
        read["tool_calls"] = [_read_call(call) for call in entry.tool_calls]
    if entry.tool_call_id:
        read["tool_call_id"] = entry.tool_call_id
    return read


def _read_call(call: pb.ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_tools(tools: Sequence[str]) -> list[Any]:
    check_range("chat.tools count", len(tools), 0, MAX_TOOLS)
    try:
        return [json.loads(tool) for tool in tools]
    except (ValueError, RecursionError):
        raise InvalidFieldError("chat.tools", "has an entry that is not JSON") from None
