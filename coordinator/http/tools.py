"""Tools in chat: what the model is told, and the form in which it calls them.

Each call is written `<tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call>`, as Hermes' and Qwen's models do by
themselves. The grammar forces that form, with arguments that follow the function's schema; without being forced to call
a model may write any text, and is held to the form from `<tool_call>` on.
"""

import json
from typing import Any

from coordinator.http.structure_parameters import NamedTool, Tool, ToolParameters
from coordinator.http.structures import schema_text
from specpair.errors import InvalidFieldError
from specpair.v1 import structured_output_pb2 as pb

BEGIN, NAME_KEY, ARGUMENTS_KEY, END = "<tool_call>", '\n{"name": "', '", "arguments": ', "}\n</tool_call>"
MOST_CALLS = 16
"""Calls in one answer that must call."""
SPACE = {"whitespace_pattern": r"[ \t\n]{0,16}"}


def tools_in_use(parameters: ToolParameters) -> list[Tool]:
    """The tools that the model may call now. Raises InvalidFieldError for a choice without its tool."""
    tools, choice = parameters.tools or [], parameters.tool_choice
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidFieldError("tools", "has two functions of one name")
    if isinstance(choice, NamedTool):
        if choice.function.name not in names:
            raise InvalidFieldError("tool_choice", f"names {choice.function.name!r}, which is none of the tools")
        return [tool for tool in tools if tool.function.name == choice.function.name]
    if choice == "required" and not tools:
        raise InvalidFieldError("tool_choice", "is required, but there are no tools")
    return [] if choice == "none" else tools


def may_call(parameters: ToolParameters) -> bool:
    """Whether the model may call tools, but need not."""
    choice = parameters.tool_choice
    return bool(tools_in_use(parameters)) and choice != "required" and not isinstance(choice, NamedTool)


def described(tools: list[Tool] | None) -> list[str]:
    """The tools for the chat template, each as JSON."""
    documents = [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in tools or ()]
    return [schema_text("tools", document) for document in documents]


def calling_grammar(parameters: ToolParameters) -> pb.StructuredOutput | None:
    """The form of an answer with these tools; None without tools."""
    tools = tools_in_use(parameters)
    if not tools:
        return None
    is_single = isinstance(parameters.tool_choice, NamedTool) or parameters.parallel_tool_calls is False
    rules = _free(is_single) if may_call(parameters) else _forced(is_single)
    rules.append("body: " + " | ".join(f"body_{index}" for index in range(len(tools))))
    rules += [_body(index, tool) for index, tool in enumerate(tools)]
    return pb.StructuredOutput(grammar="\n".join(rules))


def _forced(is_single: bool) -> list[str]:
    more = "" if is_single else f' ("\\n" call){{0,{MOST_CALLS - 1}}}'
    return [f"start: call{more}", f"call: {_quoted(BEGIN)} body"]


def _free(is_single: bool) -> list[str]:
    """Text, and calls after it. The trigger is lazy: it ends the text where it is first complete."""
    calls = "call?" if is_single else "call*"
    trigger = f"trigger[lazy]: TEXT {_quoted(BEGIN)}"
    return [f"start: {calls} text", "text: TEXT", trigger, "call: trigger body", r"TEXT: /(.|\n)*/"]


def _body(index: int, tool: Tool) -> str:
    function = tool.function
    schema: dict[str, Any] = function.parameters or {"type": "object"}
    arguments = schema_text("tools", {"x-guidance": SPACE, **schema})
    head = NAME_KEY + function.name + ARGUMENTS_KEY
    return f"body_{index}: {_quoted(head)} %json {arguments} {_quoted(END)}"


def _quoted(text: str) -> str:
    return json.dumps(text)
