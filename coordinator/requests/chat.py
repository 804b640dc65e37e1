"""A conversation, as a request has it, for the chat template."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from coordinator.requests.chat_template import ChatOptions
from specpair.errors import InvalidFieldError
from specpair.options import check_range
from specpair.v1 import coordinator_service_pb2 as pb

MAX_CHAT_MESSAGES = 4096
MAX_TOOLS = 128
MAX_TEMPLATE_KWARGS_LENGTH = 16384
"""Characters of the JSON text."""
MAX_DEPTH = 64
"""Levels of JSON in tools, calls and kwargs: a template may lay each level out with more white space."""
ROLES = ("system", "developer", "user", "assistant", "tool")
"""`developer` is OpenAI's newer name of `system`, which chat templates know."""


def character_count(chat: pb.Chat) -> int:
    """The characters that the template lays out. Its own variables are not among them: most are flags."""
    return sum(map(_characters, chat.messages)) + sum(map(len, chat.tools))


def _characters(entry: pb.ChatMessage) -> int:
    texts = len(entry.content) + len(entry.reasoning_content)
    return texts + sum(len(call.name) + len(call.arguments) for call in entry.tool_calls)


def read_messages(messages: Sequence[pb.ChatMessage]) -> list[dict[str, Any]]:
    """The messages as chat templates of Hugging Face models expect them. Raises InvalidFieldError."""
    check_range("chat.messages count", len(messages), 1, MAX_CHAT_MESSAGES)
    for index, entry in enumerate(messages):
        if entry.role not in ROLES:
            raise InvalidFieldError(
                f"chat.messages[{index}].role", f"is {entry.role!r}; it must be one of {', '.join(ROLES)}"
            )
    return [_read_message(f"chat.messages[{index}]", entry) for index, entry in enumerate(messages)]


def _read_message(field: str, entry: pb.ChatMessage) -> dict[str, Any]:
    role = "system" if entry.role == "developer" else entry.role
    read: dict[str, Any] = {"role": role, "content": entry.content}
    if entry.reasoning_content:
        # Most templates know it by the older name, some by the newer one.
        read |= {"reasoning_content": entry.reasoning_content, "reasoning": entry.reasoning_content}
    if entry.tool_calls:
        read["tool_calls"] = [_read_call(f"{field}.tool_calls[{i}]", call) for i, call in enumerate(entry.tool_calls)]
    if entry.tool_call_id:
        read["tool_call_id"] = entry.tool_call_id
    return read


def _read_call(field: str, call: pb.ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    check_depth(f"{field}.arguments", arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def read_tools(tools: Sequence[str]) -> list[Any]:
    """The tools. Raises InvalidFieldError."""
    check_range("chat.tools count", len(tools), 0, MAX_TOOLS)
    try:
        read = [json.loads(tool) for tool in tools]
    except (ValueError, RecursionError):
        raise InvalidFieldError("chat.tools", "has an entry that is not JSON") from None
    for index, tool in enumerate(read):
        check_depth(f"chat.tools[{index}]", tool)
    return read


def check_depth(field: str, value: object) -> None:
    """Raises InvalidFieldError for JSON of more than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return
    raise InvalidFieldError(field, f"has more than {MAX_DEPTH} levels of JSON", limit=MAX_DEPTH)


def _parts(whole: object) -> Iterable[object]:
    if isinstance(whole, dict):
        return whole.values()
    return whole if isinstance(whole, list) else ()


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
    check_depth(field, variables)
    return variables
