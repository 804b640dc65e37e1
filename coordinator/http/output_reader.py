"""Reads what one output of a conversation says: reasoning, the answer's text, calls of tools."""

from dataclasses import dataclass, field

from coordinator.http.reasoning_reader import ReasoningReader, Told
from coordinator.http.tool_calls import Found, FoundCall, ToolCallReader


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a piece of the output's text brought."""

    reasoning: str = ""
    found: Found = field(default_factory=Found)
    """After the reasoning."""

    @property
    def text(self) -> str:
        return self.found.text

    @property
    def calls(self) -> list[FoundCall]:
        return self.found.calls


class OutputReader:
    """Reads one output, piece by piece. Calls are looked for after the reasoning."""

    def __init__(self, reasoning: ReasoningReader | None, calls: ToolCallReader | None):
        """None for what is not looked for: it is text then."""
        self._reasoning = reasoning
        self._calls = calls

    @property
    def has_whole_call(self) -> bool:
        """Whether it has calls that can be made: the last that has begun has all its arguments."""
        return self._calls is not None and self._calls.has_whole_call

    def push(self, text: str, *, is_last: bool = False) -> Said:
        """Adds text, and returns what is certain now; with the last text, all of it."""
        told = Told("", text) if self._reasoning is None else self._reasoning.push(text, is_last=is_last)
        found = Found()
        if self._calls is None:
            found.add_text(told.answer)
        else:
            found = self._calls.push(told.answer, is_last=is_last)
        return Said(reasoning=told.reasoning, found=found)
