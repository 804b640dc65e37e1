"""A response: the answer to a conversation in items, as one body or in the events of a stream."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.json_pieces import rows
from coordinator.http.output_items import OutputItems
from coordinator.http.outputs import Outputs
from coordinator.http.response_items import COMPLETED, IN_PROGRESS, INCOMPLETE, Event
from coordinator.requests.reasoning import Reasoning
from specpair.v1 import coordinator_service_pb2 as pb

ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""OpenAI's codes of a response that failed, by the status that a whole one would have had. All others are
SERVER_ERROR."""
SERVER_ERROR = "server_error"


@dataclass(kw_only=True)
class ResponseAnswer:
    """Builds the response from Serving's responses; `items` and `outputs` hold what was received so far."""

    echo: Mapping[str, Any]
    """What it says of its request."""
    items: OutputItems
    outputs: Outputs
    """The one output."""
    parts: AnswerParts
    request_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    stream_end = b""
    _event_count: int = 0

    @property
    def reasoning(self) -> Reasoning | None:
        return self.parts.reasoning

    @property
    def shown(self) -> Mapping[int, str]:
        return self.parts.shown

    def add(self, prompt_index: int, response: pb.GenerateTokensResponse) -> None:
        self._take(prompt_index, response)

    def body(self) -> dict[str, Any]:
        return self._finished()

    def chunks(self, prompt_index: int, response: pb.GenerateTokensResponse) -> Iterator[Event]:
        """The first ones begin the response, so that a request that is refused has a status of its own. Each gets its
        number when it is taken, so that none is missing before the one that says that the response failed."""
        events: list[Event] = []
        if not self._event_count:
            events += [
                {"type": "response.created", "response": self._document(IN_PROGRESS)},
                {"type": "response.in_progress", "response": self._document(IN_PROGRESS)},
            ]
        return map(self._numbered, events + self._take(prompt_index, response))

    def last_chunks(self) -> list[Event]:
        document = self._finished()
        return [self._numbered({"type": f"response.{document['status']}", "response": document})]

    def failed(self, status: int, body: dict[str, Any]) -> Event:
        """With the items that had come, the last of which is incomplete."""
        self.items.break_off(INCOMPLETE)
        error = body["error"]
        told = {"code": ERROR_CODES.get(status, SERVER_ERROR), "message": error["message"]}
        told |= {"type": error["type"], "param": error["param"]}
        document = self._document("failed") | {"error": told}
        return self._numbered({"type": "response.failed", "response": document})

    def _take(self, prompt_index: int, response: pb.GenerateTokensResponse) -> list[Event]:
        self.outputs.add(prompt_index, response)
        has_ended = response.HasField("summary")
        events = self.items.push(response.text, response.tokens, is_last=has_ended)
        return events + self.items.end(_status(response.summary)) if has_ended else events

    def _finished(self) -> dict[str, Any]:
        (output,) = self.outputs.all
        assert output.summary is not None
        status = _status(output.summary)
        document = {
            **self._document(status),
            "usage": self._usage(),
            "metrics": self.outputs.metrics(),
            "seed": output.summary.seed,
        }
        if status == COMPLETED:
            document["completed_at"] = int(time.time())
        else:
            document["incomplete_details"] = {"reason": "max_output_tokens"}
        if output.summary.HasField("beam_score"):
            document["beam_score"] = output.summary.beam_score
        if output.rounds:
            document["specpair"] = {"rounds": rows(output.rounds, output.rounds)}
        return document

    def _document(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self.request_id}",
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": self.items.documents(),
            "usage": None,
            **self.echo,
        }

    def _usage(self) -> dict[str, Any]:
        """By the names that responses have. Which tokens were reasoning is not known, nor what a cache was given."""
        usage = self.outputs.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    def _numbered(self, event: Event) -> Event:
        number, self._event_count = self._event_count, self._event_count + 1
        return {"type": event["type"], "sequence_number": number, **event}


def _status(summary: pb.GenerationSummary) -> str:
    return COMPLETED if summary.finish_reason == pb.FINISH_REASON_STOP else INCOMPLETE
