"""Reasoning that comes before an answer: where an answer to a conversation begins, and what its structured output
becomes there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from coordinator.reasoning_form import ReasoningForm
from specpair.grammars.lark import TEXT, up_to
from specpair.grammars.nested import nested
from specpair.options import StructuredOutput, StructureKind

SPACE = r"SPACE: /[ \t\r\n]{0,16}/"


class Beginning(Enum):
    """Where the text begins that follows a prompt."""

    BEFORE = auto()
    """It may open reasoning, or be an answer at once."""
    INSIDE = auto()
    """In reasoning that has no text yet."""
    CONTINUED = auto()
    """In reasoning whose text the client began."""
    AFTER = auto()
    """In the answer: nothing in it is reasoning."""


@dataclass(kw_only=True)
class Reasoning:
    """The reasoning of the outputs of one request."""

    form: ReasoningForm
    special_ids: Mapping[str, int] = field(default_factory=dict)
    """The special tokens that stand for the form's tags, if there are any."""
    may_lack_answer: bool = False
    """Whether an output with a structured output may end before its answer, which is free to be empty."""
    beginning: Beginning = Beginning.BEFORE
    """Known once the prompt is read."""


def beginning_of(form: ReasoningForm, prompt: str, continued: str = "") -> Beginning:
    """Where a text begins after `prompt`, whose end is `continued`, the text of a message that goes on, or else what
    the chat template puts before a new message."""
    if continued.strip():
        is_open = continued.rfind(form.begin) > continued.rfind(form.end)
        return Beginning.CONTINUED if is_open else Beginning.AFTER
    before = prompt.rstrip()
    if before.endswith(form.begin):
        return Beginning.INSIDE
    if before.endswith(form.end):
        return Beginning.AFTER
    return Beginning.INSIDE if form.begins_inside else Beginning.BEFORE


def with_reasoning(structured: StructuredOutput, reasoning: Reasoning) -> StructuredOutput:
    """What the whole text has to look like if the structured output is that of the answer alone. Raises
    InvalidGrammarError, and InvalidFieldError if it becomes too large."""
    if reasoning.beginning is Beginning.AFTER:
        return structured
    begin, end = ((tag, reasoning.special_ids.get(tag)) for tag in (reasoning.form.begin, reasoning.form.end))
    opens = reasoning.beginning is Beginning.BEFORE
    thought = "open thought" if opens else "thought"
    ways = [f"{thought} SPACE answer"]
    if opens:
        ways.append("answer")
    if reasoning.may_lack_answer:
        ways.append("open TEXT" if opens else "TEXT")
    rules = [f"start: {' | '.join(ways)}", *up_to("thought", *end), SPACE, TEXT, f"answer: {nested(structured)}"]
    if opens:
        rules += up_to("open", *begin, before="SPACE")
    return StructuredOutput(kind=StructureKind.GRAMMAR, source="\n".join(rules))
