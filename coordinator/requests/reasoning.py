"""Reasoning that comes before an answer: where an answer to a conversation begins, and what its structured output
becomes there."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from coordinator.reasoning_form import ReasoningForm
from specpair.errors import InvalidFieldError
from specpair.grammars.lark import SPACE, TEXT, one_of_tokens, up_to
from specpair.grammars.nested import nested
from specpair.options import MAX_STRUCTURE_BYTES, StructuredOutput, StructureKind


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
    mark_ids: Mapping[str, int] = field(default_factory=dict)
    """The added tokens that stand for the form's tags, if there are any."""
    tag_ids: Collection[int] = ()
    """Other added tokens that the reasoning may have."""
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
    form, ids = reasoning.form, reasoning.mark_ids
    before, rules = _opening(reasoning)
    tagged = "tagged* " if reasoning.tag_ids else ""
    ways = [f"{before}{tagged}thought SPACE answer"]
    if reasoning.beginning is Beginning.BEFORE:
        ways.append("answer")
    if reasoning.may_lack_answer:
        ways.append(f"{before}{tagged}TEXT")
    if tagged:
        rules.append(f"tagged: TEXT {one_of_tokens(reasoning.tag_ids)}")
    rules += up_to("thought", form.end, ids.get(form.end))
    source = "\n".join([f"start: {' | '.join(ways)}", *rules, SPACE, TEXT, f"answer: {nested(structured)}"])
    if (size := len(source.encode(errors="replace"))) > MAX_STRUCTURE_BYTES:
        problem = f"takes {size} bytes with the reasoning before it; it must take at most {MAX_STRUCTURE_BYTES}"
        raise InvalidFieldError(f"structured_output.{structured.kind}", problem)
    return StructuredOutput(kind=StructureKind.GRAMMAR, source=source)


def _opening(reasoning: Reasoning) -> tuple[str, list[str]]:
    """What comes before a thought, as the beginning of a rule's right side, and the rules for it."""
    begin = reasoning.form.begin
    begin_id = reasoning.mark_ids.get(begin)
    if reasoning.beginning is Beginning.BEFORE:
        return "open ", up_to("open", begin, begin_id, before="SPACE")
    if reasoning.beginning is Beginning.INSIDE and begin_id is not None:  # where it is spelled it is any text
        return "opened? ", [f"opened: SPACE <[{begin_id}]>"]
    return "", []
