"""A request for a response as a request for a chat completion, which has the same limits."""

import json
from typing import Any

from pydantic import BaseModel

from coordinator.http.item_messages import item_messages
from coordinator.http.parameters import ChatMessage, ChatParameters, GenerationParameters, LayoutParameters
from coordinator.http.response_parameters import (
    LOGPROBS,
    AllowedFunctions,
    FunctionChoice,
    FunctionTool,
    ResponseParameters,
    TextFormat,
)
from coordinator.http.structure_parameters import (
    AllowedChoice,
    AllowedTools,
    FunctionDefinition,
    FunctionName,
    JsonSchemaFormat,
    NamedTool,
    ResponseFormat,
    Tool,
)
from coordinator.http.structures import check_text, structure_name, structured_output_of
from coordinator.requests.chat import check_depth
from specpair.errors import InvalidFieldError

SHARED = GenerationParameters.model_fields | LayoutParameters.model_fields
"""Parameters that both have, with the same meaning. Those that are not for responses are None."""


def chat_parameters(parameters: ResponseParameters) -> ChatParameters:
    """The same request for a chat completion. Raises InvalidFieldError."""
    messages = item_messages(parameters.input)
    if parameters.instructions:
        messages.insert(0, ChatMessage.model_construct(role="system", content=parameters.instructions))
    own: dict[str, Any] = {
        "messages": messages,
        "max_completion_tokens": parameters.max_output_tokens,
        "logprobs": bool(parameters.top_logprobs) or LOGPROBS in (parameters.include or ()),
        "top_logprobs": parameters.top_logprobs,
        "response_format": _response_format(parameters),
        "tools": None if parameters.tools is None else [_tool(tool) for tool in parameters.tools],
        "tool_choice": _tool_choice(parameters.tool_choice),
        "parallel_tool_calls": parameters.parallel_tool_calls,
    }
    return ChatParameters.model_construct(**{name: getattr(parameters, name) for name in SHARED} | own)


def echoed(parameters: ResponseParameters) -> dict[str, Any]:
    """What a response says of its request. Raises InvalidFieldError for what an answer cannot hold."""
    asked = _format(parameters)
    described = {"type": "text"} if asked is None else asked.model_dump(by_alias=True, exclude_none=True)
    tools = [tool.model_dump() | {"strict": tool.strict is not False} for tool in parameters.tools or ()]
    _check_document("text.format", described)
    _check_document("tools", tools)
    choice = parameters.tool_choice
    return {
        "background": False,
        "instructions": parameters.instructions,
        "max_output_tokens": parameters.max_output_tokens,
        "metadata": parameters.metadata or {},
        "parallel_tool_calls": parameters.parallel_tool_calls is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": parameters.temperature,
        "text": {"format": described},
        "tool_choice": choice.model_dump() if isinstance(choice, BaseModel) else choice or "auto",
        "tools": tools,
        "top_logprobs": parameters.top_logprobs or 0,
        "top_p": parameters.top_p,
        "truncation": "disabled",
        "user": parameters.user,
    }


def _check_document(field: str, value: object) -> None:
    """A body may hold more than an answer can: Python reads NaN and half characters where JSON has none."""
    check_depth(field, value)
    try:
        check_text(field, json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise InvalidFieldError(field, "holds a number that JSON does not have") from None


def _format(parameters: ResponseParameters) -> TextFormat | None:
    return None if parameters.text is None else parameters.text.format


def _response_format(parameters: ResponseParameters) -> ResponseFormat | None:
    asked = _format(parameters)
    if asked is None or asked.type == "text":
        return None
    if structured_output_of(parameters) is not None:
        raise InvalidFieldError("text.format", f"cannot be combined with {structure_name(parameters)}")
    if asked.type == "json_object":
        return ResponseFormat.model_construct(type=asked.type)
    if asked.content is None:
        raise InvalidFieldError("text.format", "of type json_schema must have a schema")
    schema = JsonSchemaFormat.model_construct(name=asked.name, content=asked.content)
    return ResponseFormat.model_construct(type=asked.type, json_schema=schema)


def _tool(tool: FunctionTool) -> Tool:
    names = FunctionDefinition.model_fields
    function = FunctionDefinition.model_construct(**{name: getattr(tool, name) for name in names})
    return Tool.model_construct(type=tool.type, function=function)


def _tool_choice(choice: str | FunctionChoice | AllowedFunctions | None) -> Any:
    """In chat's form."""
    if isinstance(choice, FunctionChoice):
        return _named_tool(choice)
    if isinstance(choice, AllowedFunctions):
        tools = [_named_tool(function) for function in choice.tools]
        allowed = AllowedTools.model_construct(mode=choice.mode, tools=tools)
        return AllowedChoice.model_construct(type=choice.type, allowed_tools=allowed)
    return choice


def _named_tool(choice: FunctionChoice) -> NamedTool:
    return NamedTool.model_construct(function=FunctionName.model_construct(name=choice.name))
