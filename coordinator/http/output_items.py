"""Makes the items of a response from the text of its output, which comes piece by piece."""

import secrets
from collections.abc import Sequence
from typing import Any

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.output_reader import OutputReader
from coordinator.http.response_items import COMPLETED, IN_PROGRESS, CallItem, Event, Item, MessageItem, ReasoningItem
from coordinator.http.response_logprobs import ResponseLogprobs
from coordinator.http.tool_calls import FoundCall
from specpair.grammars.lark import WHITE
from specpair.v1 import coordinator_service_pb2 as pb

ID_BYTES = 12


class OutputItems:
    """The items of one output, as far as they came; each ends before the next one begins.

    Tokens are not told apart by items: each stands with the next text, that of reasoning and of calls included, and
    those after the last text with that, if it is the last item.
    """

    def __init__(self, parts: AnswerParts, logprobs: ResponseLogprobs | None):
        """`parts` is what is looked for in the text; `logprobs` is None if none are asked for."""
        self._parts = parts
        self._logprobs = logprobs
        self._reader: OutputReader | None = None
        self._items: list[Item] = []
        self._tokens: list[pb.GeneratedToken] = []
        """Those that stand with no text yet."""

    def documents(self) -> list[dict[str, Any]]:
        return [item.document() for item in self._items]

    def push(self, text: str, tokens: Sequence[pb.GeneratedToken] = (), *, is_last: bool = False) -> list[Event]:
        """Adds text with its tokens, and returns the events of what is certain now; with the last text, all of it."""
        if self._reader is None:
            self._reader = self._parts.reader()
        said = self._reader.push(text, is_last=is_last)
        if self._logprobs is not None:
            self._tokens.extend(tokens)
        events = self._add_reasoning(said.reasoning) if said.reasoning else []
        for part in said.found.parts:
            events += self._add_text(part) if isinstance(part, str) else self._add_call(part)
        return events

    def end(self, status: str) -> list[Event]:
        """Ends the last item as COMPLETED or INCOMPLETE, all others being complete. An output that says nothing is a
        message without text."""
        events = [] if self._items or status != COMPLETED else self._begin(self._new_message())
        last = self._last
        if isinstance(last, MessageItem) and self._tokens:
            tokens, self._tokens = self._tokens, []
            events += last.add("", tokens)
        return events + self._end_last(status)

    def break_off(self, status: str) -> None:
        """The same for an output that failed, of which nothing more is told."""
        if self._items and self._items[-1].status == IN_PROGRESS:
            self._items[-1].status = status

    def _add_reasoning(self, text: str) -> list[Event]:
        last, events = self._last, list[Event]()
        if not isinstance(last, ReasoningItem):
            last = ReasoningItem(index=len(self._items), id=_new_id("rs"))
            events = self._begin(last)
        return events + last.add(text)

    def _add_text(self, text: str) -> list[Event]:
        last, events = self._last, list[Event]()
        if not isinstance(last, MessageItem):
            text = text.lstrip(WHITE) if isinstance(last, CallItem) else text  # white space after a call is no content
            if not text:
                return []
            last = self._new_message()
            events = self._begin(last)
        tokens, self._tokens = self._tokens, []
        return events + last.add(text, tokens)

    def _add_call(self, call: FoundCall) -> list[Event]:
        last, events = self._last, list[Event]()
        if call.id is not None:
            assert call.name is not None
            last = CallItem(index=len(self._items), id=_new_id("fc"), call_id=call.id, name=call.name)
            events = self._begin(last)
        assert isinstance(last, CallItem)
        return events + last.add(call.arguments)

    @property
    def _last(self) -> Item | None:
        return self._items[-1] if self._items else None

    def _new_message(self) -> MessageItem:
        return MessageItem(index=len(self._items), id=_new_id("msg"), layout=self._logprobs)

    def _begin(self, item: Item) -> list[Event]:
        events = self._end_last(COMPLETED)
        self._items.append(item)
        return events + item.begin()

    def _end_last(self, status: str) -> list[Event]:
        return [] if self._last is None else self._last.end(status)


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(ID_BYTES)}"
