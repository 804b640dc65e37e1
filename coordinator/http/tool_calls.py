"""Finds the calls of tools in a text that comes piece by piece."""

import secrets
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.marks import begun_length, split_end
from coordinator.http.tools import ARGUMENTS_KEY, BEGIN, END, NAME_KEY


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

    text: str = ""
    calls: list[FoundCall] = field(default_factory=list)


class ToolCallReader:
    """Reads one output. What may be the beginning of a call is held back until that is known."""

    def __init__(self) -> None:
        self.count = 0
        """Calls that have begun."""
        self._held = ""
        self._state = self._in_text

    def push(self, text: str, *, is_last: bool = False) -> Found:
        """Adds text, and returns what is certain now; with the last text, all of it."""
        self._held += text
        found = Found()
        while self._state(found, is_last):
            pass
        return found

    def _in_text(self, found: Found, is_last: bool) -> bool:
        before, begin, after = self._held.partition(BEGIN)
        if begin:
            found.text += before.strip() if self.count else before.rstrip()
            self._held, self._state = after, self._in_head
            return True
        text, self._held = split_end(self._held, 0 if is_last else begun_length(self._held, BEGIN))
        if not self.count:  # white space before a call, and around calls, is no content
            stripped = text if is_last else text.rstrip()
            self._held = text[len(stripped) :] + self._held
            found.text += stripped
        elif text.strip():
            found.text += text
        return False

    def _in_head(self, found: Found, is_last: bool) -> bool:
        name, key, after = self._held.removeprefix(NAME_KEY).partition(ARGUMENTS_KEY)
        if not key or not self._held.startswith(NAME_KEY):
            return False  # an output that was cut off here has begun no call
        found.calls.append(FoundCall(index=self.count, id=f"call_{secrets.token_hex(12)}", name=name))
        self.count += 1
        self._held, self._state = after, self._in_arguments
        return True

    def _in_arguments(self, found: Found, is_last: bool) -> bool:
        arguments, end, after = self._held.partition(END)
        if end:
            self._add(found, arguments)
            self._held, self._state = after, self._in_text
            return True
        arguments, self._held = split_end(self._held, 0 if is_last else begun_length(self._held, END))
        self._add(found, arguments)
        return False

    def _add(self, found: Found, arguments: str) -> None:
        if not found.calls or found.calls[-1].index != self.count - 1:
            if not arguments:
                return
            found.calls.append(FoundCall(index=self.count - 1))
        found.calls[-1].arguments += arguments


def vars_of(call: FoundCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}
