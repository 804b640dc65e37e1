"""The answer to one request, as one body or as the chunks of a stream."""

import time
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.forms import Form, Piece
from coordinator.http.outputs import FINISH_REASONS, Output, Outputs
from coordinator.http.rounds import round_document
from specpair.rpc.generation_metrics import generation_metrics
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(kw_only=True)
class Answer:
    """Fed with what Serving answers; `outputs` is what has come so far."""

    form: Form
    outputs: Outputs
    request_id: str
    model: str
    include_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    _started: set[int] = field(default_factory=set)
    _offsets: dict[int, int] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """All of it, once every output is finished."""
        return {
            **self._head(self.form.names.body),
            "choices": [self._choice(output) for output in self.outputs.all],
            "usage": self.outputs.usage(),
            "metrics": self.outputs.metrics(),
        }

    def chunks(self, prompt_index: int, response: pb.GenerateTokensResponse) -> list[dict[str, Any]]:
        """What a client is told of a response: nothing if no text came of it and it asked for nothing more."""
        output = self.outputs.of(prompt_index, response)
        if response.prompt_tokens:
            output.prompt_tokens.extend(response.prompt_tokens)
            return []
        chunks = []
        if response.text or response.HasField("round") or any(token.HasField("logprobs") for token in response.tokens):
            chunks.append(self._piece_chunk(output, response))
        if response.HasField("summary"):
            output.summary = response.summary
            chunks.append(self._finish_chunk(output, response.summary))
        return chunks

    def usage_chunk(self) -> dict[str, Any]:
        """The last one, if it was asked for."""
        head = self._head(self.form.names.chunk)
        return {**head, "choices": [], "usage": self.outputs.usage(), "metrics": self.outputs.metrics()}

    def _choice(self, output: Output) -> dict[str, Any]:
        assert output.summary is not None
        piece = Piece(text="".join(output.text), tokens=output.tokens, prompt_tokens=output.prompt_tokens)
        choice: dict[str, Any] = {"index": output.index, **self.form.body(piece), **_ending(output.summary)}
        if len(self.outputs.all) > 1:
            choice["metrics"] = generation_metrics(output.summary)
        if output.rounds:
            choice["specpair"] = {"rounds": output.rounds}
        return choice

    def _piece_chunk(self, output: Output, response: pb.GenerateTokensResponse) -> dict[str, Any]:
        choice = {"index": output.index, **self.form.chunk(self._piece(output, response)), "finish_reason": None}
        chunk = {**self._head(self.form.names.chunk), "choices": [choice]}
        if response.HasField("round"):
            chunk["specpair"] = round_document(response)
        return chunk

    def _finish_chunk(self, output: Output, summary: pb.GenerationSummary) -> dict[str, Any]:
        piece = self._piece(output, pb.GenerateTokensResponse())
        choice = {"index": output.index, **self.form.chunk(piece), **_ending(summary)}
        head = self._head(self.form.names.chunk)
        return {**head, "choices": [choice], "metrics": generation_metrics(summary)}

    def _piece(self, output: Output, response: pb.GenerateTokensResponse) -> Piece:
        """The next piece of an output."""
        is_first = output.index not in self._started
        self._started.add(output.index)
        prompt_tokens = output.prompt_tokens if is_first else ()
        shown = [*prompt_tokens, *response.tokens] if self.form.echo else response.tokens
        offset = self._offsets.get(output.index, 0)
        self._offsets[output.index] = offset + sum(len(token.text) for token in shown)
        return Piece(
            text=response.text,
            tokens=response.tokens,
            prompt_tokens=prompt_tokens,
            offset=offset,
            is_first=is_first,
        )

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = f"{self.form.names.id_prefix}-"
        return {"id": prefix + self.request_id, "object": kind, "created": self.created, "model": self.model}


def _ending(summary: pb.GenerationSummary) -> dict[str, Any]:
    return {"finish_reason": FINISH_REASONS[summary.finish_reason], "seed": summary.seed}
