"""The messages that the items of a conversation stand for, as chat has them."""

import json
from collections.abc import Sequence

from coordinator.http.input_items import InputCall, InputCallOutput, InputItem, InputMessage, InputReasoning
from coordinator.http.parameters import ChatMessage
from coordinator.http.structure_parameters import MAX_TOOLS, FunctionCall, ToolCall
from coordinator.requests.chat import check_depth
from specpair.errors import InvalidFieldError


def item_messages(items: Sequence[InputItem]) -> list[ChatMessage]:
    """One message for each item, except that reasoning, what the assistant said after it, and its calls after that are
    one together. Raises InvalidFieldError."""
    messages: list[ChatMessage] = []
    for index, item in enumerate(items):
        if isinstance(item, InputReasoning):
            _add_reasoning(messages, item.text)
        elif isinstance(item, InputCall):
            _add_call(messages, item, f"input[{index}]")
        elif isinstance(item, InputCallOutput):
            messages.append(ChatMessage.model_construct(role="tool", content=item.output, tool_call_id=item.call_id))
        else:
            _add_message(messages, item)
    return messages


def _add_reasoning(messages: list[ChatMessage], text: str) -> None:
    if text:
        messages.append(ChatMessage.model_construct(role="assistant", reasoning_content=text))


def _add_message(messages: list[ChatMessage], item: InputMessage) -> None:
    last = messages[-1] if messages else None
    if last is not None and item.role == "assistant" and _is_mere_reasoning(last):
        last.content = item.content
    else:
        messages.append(ChatMessage.model_construct(role=item.role, content=item.content))


def _add_call(messages: list[ChatMessage], item: InputCall, field: str) -> None:
    _check_arguments(f"{field}.arguments", item.arguments)
    if not messages or messages[-1].role != "assistant":
        messages.append(ChatMessage.model_construct(role="assistant"))
    last = messages[-1]
    last.tool_calls = last.tool_calls or []
    if len(last.tool_calls) == MAX_TOOLS:
        raise InvalidFieldError(field, f"is one of more than {MAX_TOOLS} calls in a row", limit=MAX_TOOLS)
    function = FunctionCall.model_construct(name=item.name, arguments=item.arguments)
    last.tool_calls.append(ToolCall.model_construct(id=item.call_id, function=function))


def _is_mere_reasoning(message: ChatMessage) -> bool:
    return bool(message.reasoning_content) and not message.content and not message.tool_calls


def _check_arguments(field: str, arguments: str) -> None:
    """As the check of all front ends, which would name a message instead of the item."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return
    check_depth(field, value)
