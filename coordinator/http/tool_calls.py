"""Finds the calls of tools in a text that comes piece by piece."""

import secrets
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.json_end import JsonEnd
from coordinator.http.marks import TrailingSpace, begun_length, split_end, without_few_spaces
from coordinator.tool_call_form import ToolCallForm
from specpair.grammars.lark import WHITE


@dataclass(kw_only=True)
class FoundCall:
    """A call, or the part of it that was found in one piece of the text."""

    index: int
    id: str | None = None
    """Only where the call begins, as the name."""
    name: str | None = None
    arguments: str = ""

    def document(self, *, is_delta: bool) -> dict[str, Any]:
        """The call in OpenAI's form."""
        function = {"arguments": self.arguments} if self.name is None else vars_of(self)
        head: dict[str, Any] = {"index": self.index} if is_delta else {}
        if self.id is not None:
            head |= {"id": self.id, "type": "function"}
        return {**head, "function": function}


@dataclass(kw_only=True)
class Found:
    """What a piece of text brought."""

    parts: list[str | FoundCall] = field(default_factory=list)
    """Text and calls, in the order in which they came."""

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def calls(self) -> list[FoundCall]:
        return [part for part in self.parts if isinstance(part, FoundCall)]

    def add_text(self, text: str) -> None:
        if text:
            self.parts.append(text)


class ToolCallReader:
    """Reads one output, whose calls have the form that a grammar forced. What may be the beginning of a call is held
    back until that is known."""

    def __init__(self, form: ToolCallForm, *, must_call: bool = False):
        """With `must_call` nothing but calls may stand in the text."""
        self.count = 0
        """Calls that have begun."""
        self._form = form
        self._held = ""
        self._space = TrailingSpace()
        self._has_text = self._has_said = False
        """Whether there was text since the last call, and at all."""
        self._arguments = JsonEnd()
        if must_call:
            self._state = self._outside = self._before_tag
        else:
            self._state = self._at_start if form.is_whole else self._in_text
            self._outside = self._in_text if form.repeats else self._in_words

    @property
    def has_whole_call(self) -> bool:
        """Whether there are calls, and the last that has begun has all its arguments."""
        return self._arguments.is_whole

    def push(self, text: str, *, is_last: bool = False) -> Found:
        """Adds text, and returns what is certain now; with the last text, all of it."""
        self._held += text
        found = Found()
        while self._state(found, is_last):
            pass
        return found

    def _before_tag(self, found: Found, is_last: bool) -> bool:
        """Where only a call may begin. What does not begin one was cut off, and is no text."""
        _, begin, after = self._held.partition(self._form.begin)
        if not begin:
            return False
        self._held, self._state = after, self._before_name
        return True

    def _at_start(self, found: Found, is_last: bool) -> bool:
        begun, begin = without_few_spaces(self._held), self._form.begin
        if begun.startswith(begin):
            self._held, self._state = begun.removeprefix(begin), self._before_name
            return True
        if begin.startswith(begun) and not is_last:
            return False
        self._state = self._in_words
        return True

    def _in_words(self, found: Found, is_last: bool) -> bool:
        """In text without calls."""
        found.add_text(self._held)
        self._held = ""
        return False

    def _in_text(self, found: Found, is_last: bool) -> bool:
        before, begin, after = self._held.partition(self._form.begin)
        if begin:
            self._add_text(found, before)
            self._space.take()  # white space before a call is no content, and none after one
            self._held, self._state, self._has_text = after, self._before_name, False
            return True
        text, self._held = split_end(self._held, 0 if is_last else begun_length(self._held, self._form.begin))
        self._add_text(found, text)
        if is_last and (self._has_text or not self.count):
            found.add_text(self._space.take())
        return False

    def _add_text(self, found: Found, text: str) -> None:
        """White space after calls is content only between two texts."""
        text = self._space.push(text.lstrip(WHITE) if self.count and not self._has_said else text)
        self._has_text |= bool(text)
        self._has_said |= bool(text)
        found.add_text(text)

    def _before_name(self, found: Found, is_last: bool) -> bool:
        held = self._held.removeprefix(" ") if self._form.may_space else self._held
        if not held.startswith(self._form.opening):
            return False
        self._held, self._state = held.removeprefix(self._form.opening), self._in_name
        return True

    def _in_name(self, found: Found, is_last: bool) -> bool:
        name, key, after = self._held.partition(self._form.key)
        if not key:
            return False  # an output that was cut off here has begun no call
        call_id = self._form.id_prefix + secrets.token_hex(self._form.id_digits)[: self._form.id_digits]
        found.parts.append(FoundCall(index=self.count, id=call_id, name=name))
        self.count += 1
        self._held, self._state, self._arguments = after, self._in_arguments, JsonEnd()
        return True

    def _in_arguments(self, found: Found, is_last: bool) -> bool:
        end = self._arguments.find(self._held)
        self._add(found, self._held[:end])
        self._held = "" if end is None else self._held[end:]
        if end is not None:
            self._state = self._after_arguments
        return end is not None

    def _after_arguments(self, found: Found, is_last: bool) -> bool:
        following, closing = self._form.following, self._form.closing + self._form.end
        if following is not None and self._held.startswith(following):
            self._held, self._state = self._held.removeprefix(following), self._in_name
            return True
        if not self._held.startswith(closing):
            return False
        self._held = self._held.removeprefix(closing)
        self._state = self._outside
        return True

    def _add(self, found: Found, arguments: str) -> None:
        last = found.parts[-1] if found.parts else None
        if not isinstance(last, FoundCall):  # the call began in an earlier piece
            if not arguments:
                return
            last = FoundCall(index=self.count - 1)
            found.parts.append(last)
        last.arguments += arguments


def vars_of(call: FoundCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}
