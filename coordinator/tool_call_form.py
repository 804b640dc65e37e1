"""The forms in which models call tools."""

from dataclasses import dataclass
from enum import StrEnum


class ToolCallParser(StrEnum):
    """Names of the forms, which are vLLM's."""

    HERMES = "hermes"
    LLAMA3_JSON = "llama3_json"
    MISTRAL = "mistral"


@dataclass(frozen=True, kw_only=True)
class ToolCallForm:
    """Calls are `begin`, `opening`, a call, `following` and a call for each further one, `closing`. A call is the
    function's name, `key`, and its arguments as JSON. After `closing` comes `end`, if there is one."""

    begin: str
    """From here on a text is calls."""
    is_whole: bool = False
    """Whether calls are a whole answer: `begin` counts at its beginning alone. Otherwise a text may come before."""
    opening: str = ""
    may_space: bool = False
    """Whether a space may stand before `opening`: tokens of SentencePiece begin with one."""
    key: str = '", "arguments": '
    following: str | None = None
    """None if there is one call only."""
    closing: str
    """It begins with the brace that ends the call, and `following` too."""
    end: str = ""
    repeats: bool = False
    """Whether text and calls may follow."""
    id_prefix: str = "call_"
    id_digits: int = 24
    """Hexadecimal digits of a call's id, after the prefix."""


TOOL_CALL_FORMS = {
    ToolCallParser.HERMES: ToolCallForm(
        begin="<tool_call>", opening='\n{"name": "', closing="}\n", end="</tool_call>", repeats=True
    ),
    ToolCallParser.LLAMA3_JSON: ToolCallForm(begin='{"name": "', is_whole=True, key='", "parameters": ', closing="}"),
    ToolCallParser.MISTRAL: ToolCallForm(
        begin="[TOOL_CALLS]",
        opening='[{"name": "',
        may_space=True,
        following='}, {"name": "',
        closing="}]",
        id_prefix="",  # Mistral's chat templates refuse any id that does not have nine characters
        id_digits=9,
    ),
}
