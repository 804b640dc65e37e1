"""A conversation, as a request has it, for the chat template."""

import json
from collections.abc import Sequence
from typing import Any

from coordinator.requests.chat_template import ChatOptions
from specpair.errors import InvalidFieldError
from specpair.options import check_range
from specpair.v1 import coordinator_service_pb2 as pb

MAX_CHAT_MESSAGES = 4096
MAX_TOOLS = 128
MAX_TEMPLATE_KWARGS_LENGTH = 16384
"""Characters of the JSON text."""
ROLES = ("system", "user", "assistant", "tool")


def character_count(chat: pb.Chat) -> int:
    """The characters that the template lays out. Its own variables are not among them: most are flags."""
    return sum(map(_characters, chat.messages)) + sum(map(len, chat.tools))


def _characters(entry: pb.ChatMessage) -> int:
    return len(entry.content) + sum(len(call.name) + len(call.arguments) for call in entry.tool_calls)


def read_messages(messages: Sequence[pb.ChatMessage]) -> list[dict[str, Any]]:
    """The messages as chat templates of Hugging Face models expect them. Raises InvalidFieldError."""
    check_range("chat.messages count", len(messages), 1, MAX_CHAT_MESSAGES)
    for index, entry in enumerate(messages):
        if entry.role not in ROLES:
            raise InvalidFieldError(f"chat.messages[{index}].role", f"is {entry.role!r}; it must be one of {ROLES}")
    return [_read_message(entry) for entry in messages]


def _read_message(entry: pb.ChatMessage) -> dict[str, Any]:
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


def read_tools(tools: Sequence[str]) -> list[Any]:
    """The tools. Raises InvalidFieldError."""
    check_range("chat.tools count", len(tools), 0, MAX_TOOLS)
    try:
        return [json.loads(tool) for tool in tools]
    except (ValueError, RecursionError):
        raise InvalidFieldError("chat.tools", "has an entry that is not JSON") from None


def read_chat_options(chat: pb.Chat) -> ChatOptions:
    """How the conversation, of at least one message, is laid out. Raises InvalidFieldError."""
    if chat.continue_final_message:
        field = "chat.continue_final_message"
        if chat.HasField("add_generation_prompt") and chat.add_generation_prompt:
            raise InvalidFieldError(field, "cannot be combined with add_generation_prompt")
        if (role := chat.messages[-1].role) != "assistant":
            raise InvalidFieldError(field, f"needs a last message of the assistant; its role is {role!r}")
    return ChatOptions(
        continues_last=chat.continue_final_message,
        adds_prompt=not chat.HasField("add_generation_prompt") or chat.add_generation_prompt,
        variables=_read_kwargs(chat.chat_template_kwargs),
    )


def _read_kwargs(text: str) -> dict[str, Any]:
    field = "chat.chat_template_kwargs"
    check_range(f"{field} length", len(text), 0, MAX_TEMPLATE_KWARGS_LENGTH)
    try:
        variables = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise InvalidFieldError(field, "is not JSON") from None
    if not isinstance(variables, dict):
        raise InvalidFieldError(field, "is not a JSON object")
    return variables
