"""Tools in chat: what the model is told, and the grammar of its answers.

The grammar forces the form of the calls, with arguments that follow the function's schema. Without being forced to call
a model may write any text, and is held to the form from where calls begin.
"""

from coordinator.http.structure_parameters import NamedTool, Tool, ToolParameters
from coordinator.http.structures import schema_text
from coordinator.tool_call_form import ToolCallForm
from specpair.errors import InvalidFieldError
from specpair.grammars.lark import TEXT, quoted, up_to
from specpair.grammars.schema_notes import without_notes
from specpair.v1 import structured_output_pb2 as pb

MOST_CALLS = 16
"""Calls in one answer that must call, and in a list of calls."""
SPACE = {"whitespace_pattern": r"[ \t\n]{0,16}"}
SPACE_BEFORE = r"SPACE: /[ \t\n]{0,16}/"


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


def calling_grammar(
    parameters: ToolParameters, form: ToolCallForm, special_id: int | None = None
) -> pb.StructuredOutput:
    """What an answer with these tools, at least one, looks like. `special_id` is the special token that stands for the
    beginning of calls, if there is one."""
    tools = tools_in_use(parameters)
    is_single = isinstance(parameters.tool_choice, NamedTool) or parameters.parallel_tool_calls is False
    rules = (_free if may_call(parameters) else _forced)(form, is_single, special_id)
    rules += [TEXT, SPACE_BEFORE, f"calls: {_calls(form, is_single)}"]
    rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
    rules += [_call(index, tool, form) for index, tool in enumerate(tools)]
    return pb.StructuredOutput(grammar="\n".join(rules))


def _forced(form: ToolCallForm, is_single: bool, special_id: int | None) -> list[str]:
    begin = quoted(form.begin) if special_id is None else f"<[{special_id}]>"
    more = f' ("\\n" {begin} calls){{0,{MOST_CALLS - 1}}}' if form.repeats and not is_single else ""
    return [f"start: {begin} calls{more}"]


def _free(form: ToolCallForm, is_single: bool, special_id: int | None) -> list[str]:
    """Text, and calls after it, or in its place."""
    before = "SPACE" if form.is_whole else "TEXT"
    groups = "begun calls" if not form.repeats else "(begun calls)?" if is_single else "(begun calls)*"
    start = f"start: {groups} text" if form.repeats else f"start: {groups} | text"
    return [start, "text: TEXT", *up_to("begun", form.begin, special_id, before=before)]


def _calls(form: ToolCallForm, is_single: bool) -> str:
    """What comes after the beginning."""
    parts = [quoted(form.opening)] if form.opening else []
    if form.may_space:
        parts.insert(0, '" "?')
    parts.append("call")
    if form.following is not None and not is_single:
        parts.append(f"({quoted(form.following)} call){{0,{MOST_CALLS - 1}}}")
    return " ".join([*parts, quoted(form.closing)])


def _call(index: int, tool: Tool, form: ToolCallForm) -> str:
    function = tool.function
    try:
        schema = without_notes(function.parameters or {"type": "object"})
    except RecursionError:
        raise InvalidFieldError("tools", "is nested too deeply") from None
    arguments = schema_text("tools", {"x-guidance": SPACE, **schema})
    return f"call_{index}: {quoted(function.name + form.key)} %json {arguments}"
