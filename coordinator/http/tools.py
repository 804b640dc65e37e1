"""Tools in chat: what the model is told, and the grammar of its answers.

The grammar forces the form of the calls, with arguments that follow the function's schema. Without being forced to call
a model may write any text, and is held to the form from where calls begin.
"""

from collections.abc import Collection, Mapping

from coordinator.http.structure_parameters import AllowedChoice, NamedTool, Tool, ToolChoice, ToolParameters
from coordinator.http.structures import schema_text
from coordinator.tool_call_form import ToolCallForm
from specpair.errors import InvalidFieldError
from specpair.grammars.lark import FEW_SPACES, SPACE, TEXT, one_of_tokens, quoted, spelled_or_token, up_to
from specpair.grammars.schema_notes import without_notes
from specpair.v1 import structured_output_pb2 as pb

MOST_CALLS = 16
"""Calls in one answer that must call, and in a list of calls."""
SPACED_JSON = {"whitespace_pattern": FEW_SPACES}


def tools_in_use(parameters: ToolParameters) -> list[Tool]:
    """The tools that the model may call now. Raises InvalidFieldError for a choice without its tool."""
    tools, choice = parameters.tools or [], parameters.tool_choice
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidFieldError("tools", "has two functions of one name")
    chosen = _named(choice)
    if unknown := [name for name in chosen or () if name not in names]:
        raise InvalidFieldError("tool_choice", f"names {unknown[0]!r}, which is none of the tools")
    if choice == "required" and not tools:
        raise InvalidFieldError("tool_choice", "is required, but there are no tools")
    if chosen is not None:
        return [tool for tool in tools if tool.function.name in chosen]
    return [] if choice == "none" else tools


def _named(choice: ToolChoice | None) -> list[str] | None:
    """The names in a choice; None if it has none."""
    if isinstance(choice, NamedTool):
        return [choice.function.name]
    if isinstance(choice, AllowedChoice):
        return [tool.function.name for tool in choice.allowed_tools.tools]
    return None


def may_call(parameters: ToolParameters) -> bool:
    """Whether the model may call tools, but need not."""
    return bool(tools_in_use(parameters)) and not _must_call(parameters.tool_choice)


def _must_call(choice: ToolChoice | None) -> bool:
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode == "required"
    return choice == "required" or isinstance(choice, NamedTool)


def described(tools: list[Tool] | None) -> list[str]:
    """The tools for the chat template, each as JSON."""
    documents = [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in tools or ()]
    return [schema_text("tools", document) for document in documents]


def calling_grammar(
    parameters: ToolParameters, form: ToolCallForm, ids: Mapping[str, int], tag_ids: Collection[int]
) -> pb.StructuredOutput:
    """What an answer with these tools, at least one, looks like. `ids` are the added tokens that stand for marks of the
    form, `tag_ids` others that text may have."""
    tools = tools_in_use(parameters)
    is_single = isinstance(parameters.tool_choice, NamedTool) or parameters.parallel_tool_calls is False
    repeats = form.repeats and not is_single
    begin_id = ids.get(form.begin)
    rules = _free(form, repeats, begin_id, tag_ids) if may_call(parameters) else _forced(form, repeats, begin_id)
    rules.append(f"calls: {_calls(form, is_single, ids.get(form.end))}")
    rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
    rules += [_call(index, tool, form) for index, tool in enumerate(tools)]
    return pb.StructuredOutput(grammar="\n".join(rules))


def _forced(form: ToolCallForm, repeats: bool, begin_id: int | None) -> list[str]:
    begin = quoted(form.begin) if begin_id is None else f"<[{begin_id}]>"
    more = f' ("\\n" {begin} calls){{0,{MOST_CALLS - 1}}}' if repeats else ""
    return [f"start: {begin} calls{more}"]


def _free(form: ToolCallForm, repeats: bool, begin_id: int | None, tag_ids: Collection[int]) -> list[str]:
    """Text, and calls after it, or in its place."""
    tagged = "tagged* " if tag_ids else ""
    rules = [TEXT, f"text: {tagged}TEXT", *([f"tagged: TEXT {one_of_tokens(tag_ids)}"] if tag_ids else [])]
    if form.is_whole:
        return ["start: begun calls | text", SPACE, *rules, *up_to("begun", form.begin, begin_id, before="SPACE")]
    start = f"start: ({tagged}begun calls)* text" if repeats else f"start: {tagged}begun calls | text"
    return [start, *rules, *up_to("begun", form.begin, begin_id)]


def _calls(form: ToolCallForm, is_single: bool, end_id: int | None) -> str:
    """What comes after the beginning."""
    parts = [quoted(form.opening)] if form.opening else []
    if form.may_space:
        parts.insert(0, '" "?')
    parts.append("call")
    if form.following is not None and not is_single:
        parts.append(f"({quoted(form.following)} call){{0,{MOST_CALLS - 1}}}")
    parts.append(quoted(form.closing))
    if form.end:
        parts.append(spelled_or_token(form.end, end_id))
    return " ".join(parts)


def _call(index: int, tool: Tool, form: ToolCallForm) -> str:
    function = tool.function
    try:
        schema = without_notes(function.parameters or {"type": "object"})
    except RecursionError:
        raise InvalidFieldError("tools", "is nested too deeply") from None
    arguments = schema_text("tools", {"x-guidance": SPACED_JSON, **schema})
    return f"call_{index}: {quoted(function.name + form.key)} %json {arguments}"
