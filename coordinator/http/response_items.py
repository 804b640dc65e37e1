"""The items of a response's output, each as a document and as the events of a stream, which get their numbers later."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.json_pieces import Rows
from coordinator.http.response_logprobs import ResponseLogprobs
from specpair.v1 import coordinator_service_pb2 as pb

Event = dict[str, Any]
IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"
"""What items are, and responses."""


@dataclass(kw_only=True)
class Item(ABC):
    """An item, as far as it came."""

    index: int
    """Its place in the output."""
    id: str
    status: str = IN_PROGRESS
    pieces: list[str] = field(default_factory=list)
    """Of its text, or of its arguments."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @abstractmethod
    def document(self) -> dict[str, Any]: ...

    def begin(self) -> list[Event]:
        return [{"type": "response.output_item.added", "output_index": self.index, "item": self.document()}]

    def end(self, status: str) -> list[Event]:
        """Ends the item; `status` is COMPLETED or INCOMPLETE."""
        self.status = status
        return [{"type": "response.output_item.done", "output_index": self.index, "item": self.document()}]

    def event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self.index, **fields}


@dataclass(kw_only=True)
class CallItem(Item):
    """A call of a function."""

    call_id: str
    name: str

    def document(self) -> dict[str, Any]:
        head = {"type": "function_call", "id": self.id, "call_id": self.call_id, "name": self.name}
        return {**head, "arguments": self.text, "status": self.status}

    def add(self, arguments: str) -> list[Event]:
        if not arguments:
            return []
        self.pieces.append(arguments)
        return [self.event("function_call_arguments.delta", delta=arguments)]

    def end(self, status: str) -> list[Event]:
        done = self.event("function_call_arguments.done", name=self.name, arguments=self.text)
        return [done, *super().end(status)]


@dataclass(kw_only=True)
class ContentItem(Item):
    """An item whose content is one part with a text."""

    kind = ""
    """The type of its part."""

    @abstractmethod
    def part(self) -> dict[str, Any]: ...

    @property
    def content(self) -> list[dict[str, Any]]:
        has_begun = self.pieces or self.status != IN_PROGRESS
        return [self.part()] if has_begun else []

    def begin(self) -> list[Event]:
        return [*super().begin(), self.of_part("content_part.added", part=self.part())]

    def end(self, status: str) -> list[Event]:
        done = self.of_part(f"{self.kind}.done", text=self.text, **self.extras())
        return [done, self.of_part("content_part.done", part=self.part()), *super().end(status)]

    def of_part(self, kind: str, **fields: Any) -> Event:
        return self.event(kind, content_index=0, **fields)

    def extras(self) -> dict[str, Any]:
        """What the event with the whole text has besides."""
        return {}


@dataclass(kw_only=True)
class ReasoningItem(ContentItem):
    """What the model thought."""

    kind = "reasoning_text"

    def document(self) -> dict[str, Any]:
        return {"type": "reasoning", "id": self.id, "summary": [], "content": self.content, "status": self.status}

    def part(self) -> dict[str, Any]:
        return {"type": self.kind, "text": self.text}

    def add(self, text: str) -> list[Event]:
        self.pieces.append(text)
        return [self.of_part("reasoning_text.delta", delta=text)]


@dataclass(kw_only=True)
class MessageItem(ContentItem):
    """What the model said."""

    kind = "output_text"
    layout: ResponseLogprobs | None
    """None without logprobs."""
    tokens: list[pb.GeneratedToken] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        head = {"type": "message", "id": self.id, "role": "assistant"}
        return {**head, "content": self.content, "status": self.status}

    def part(self) -> dict[str, Any]:
        return {"type": self.kind, "text": self.text, "annotations": [], "logprobs": self.logprobs(self.tokens)}

    def add(self, text: str, tokens: Sequence[pb.GeneratedToken]) -> list[Event]:
        """Adds a text, which may be empty, with tokens whose logprobs come with it."""
        self.pieces.append(text)
        self.tokens.extend(tokens)
        return [self.of_part("output_text.delta", delta=text, logprobs=self.logprobs(tokens))]

    def logprobs(self, tokens: Sequence[pb.GeneratedToken]) -> list[dict[str, Any]] | Rows:
        return [] if self.layout is None else self.layout.of(tokens)

    def extras(self) -> dict[str, Any]:
        return {"logprobs": self.logprobs(self.tokens)}
