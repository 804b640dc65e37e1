"""Tells the reasoning of an output from its answer, in a text that comes piece by piece."""

from typing import NamedTuple

from coordinator.http.marks import TrailingSpace, begun_length, split_end, without_few_spaces
from coordinator.reasoning_form import ReasoningForm
from coordinator.requests.reasoning import Beginning
from specpair.grammars.lark import WHITE


class Told(NamedTuple):
    """What a piece of text brought."""

    reasoning: str
    answer: str


class ReasoningReader:
    """Reads one output. What may be the beginning of a tag is held back until that is known, and so is white space that
    may stand beside one: it belongs to neither text. The result depends on the text alone, not on its pieces."""

    def __init__(self, form: ReasoningForm, beginning: Beginning):
        self._form = form
        self._beginning = beginning
        self._held = ""
        self._space = TrailingSpace()
        self._reasoning = self._answer = ""
        """What the piece that is being read brought."""
        self._has_begun = beginning is Beginning.CONTINUED
        """Whether some reasoning came already; white space before it is none."""
        self._state = {
            Beginning.BEFORE: self._at_start,
            Beginning.INSIDE: self._at_start,
            Beginning.CONTINUED: self._in_reasoning,
            Beginning.AFTER: self._in_answer,
        }[beginning]

    def push(self, text: str, *, is_last: bool = False) -> Told:
        """Adds text, and returns what is certain now; with the last text, all of it."""
        self._held += text
        self._reasoning = self._answer = ""
        while self._state(is_last):
            pass
        return Told(self._reasoning, self._answer)

    def _at_start(self, is_last: bool) -> bool:
        begun, tag = without_few_spaces(self._held), self._form.begin
        if begun.startswith(tag):
            self._held, self._state = begun.removeprefix(tag), self._in_reasoning
            return True
        if tag.startswith(begun) and not is_last:
            return False
        self._state = self._in_reasoning if self._beginning is Beginning.INSIDE else self._in_answer
        return True

    def _in_reasoning(self, is_last: bool) -> bool:
        thought, tag, answer = self._held.partition(self._form.end)
        if tag:
            self._add_reasoning(thought)
            self._space.take()
            self._held, self._state = answer, self._before_answer
            return True
        thought, self._held = split_end(self._held, 0 if is_last else begun_length(self._held, self._form.end))
        self._add_reasoning(thought)
        if is_last:
            self._reasoning += self._space.take()
        return False

    def _add_reasoning(self, thought: str) -> None:
        thought = self._space.push(thought if self._has_begun else thought.lstrip(WHITE))
        self._reasoning += thought
        self._has_begun |= bool(thought)

    def _before_answer(self, is_last: bool) -> bool:
        """More white space than grammars have beside a tag is text to them, so it is here."""
        answer = without_few_spaces(self._held)
        if not answer and not is_last:
            return False
        self._state = self._in_answer
        if not answer.startswith(tuple(WHITE)):
            self._held = answer
        return True

    def _in_answer(self, is_last: bool) -> bool:
        self._answer += self._held
        self._held = ""
        return False
