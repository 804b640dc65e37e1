"""The answer of completions and chat completions: choices, as one body or in the chunks of a stream."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.http.forms import Form, Piece
from coordinator.http.json_pieces import rows
from coordinator.http.outputs import FINISH_REASONS, Output, Outputs
from coordinator.http.rounds import round_document
from coordinator.requests.reasoning import Reasoning
from specpair.rpc.generation_metrics import generation_metrics
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(kw_only=True)
class ChoicesAnswer:
    """Builds the answer from Serving's responses; `outputs` holds those received so far."""

    stream_end = b"data: [DONE]\n\n"

    form: Form
    outputs: Outputs
    request_id: str
    model: str
    include_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def reasoning(self) -> Reasoning | None:
        return self.form.reasoning

    @property
    def shown(self) -> Mapping[int, str]:
        return self.form.shown

    def add(self, prompt_index: int, response: pb.GenerateTokensResponse) -> None:
        self.outputs.add(prompt_index, response)

    def body(self) -> dict[str, Any]:
        """The whole answer, once every output is finished."""
        return {
            **self._head(self.form.names.body),
            "choices": [self._choice(output) for output in self.outputs.all],
            "usage": self.outputs.usage(),
            "metrics": self.outputs.metrics(),
        }

    def chunks(self, prompt_index: int, response: pb.GenerateTokensResponse) -> list[dict[str, Any]]:
        """The chunks for a response; none if it has nothing to say yet."""
        output = self.outputs.of(prompt_index, response)
        output.take(response)
        chunks = []
        if response.text or response.HasField("round") or any(token.HasField("logprobs") for token in response.tokens):
            chunks += self._piece_chunks(output, response)
        if response.HasField("summary"):
            chunks.append(self._finish_chunk(output, response.summary))
        return chunks

    def last_chunks(self) -> list[dict[str, Any]]:
        """The one with the usage, if requested."""
        if not self.include_usage:
            return []
        head = self._head(self.form.names.chunk)
        return [{**head, "choices": [], "usage": self.outputs.usage(), "metrics": self.outputs.metrics()}]

    def failed(self, status: int, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def _choice(self, output: Output) -> dict[str, Any]:
        assert output.summary is not None
        piece = Piece(
            text="".join(output.text),
            tokens=output.tokens,
            prompt_tokens=output.prompt_tokens,
            offset_of=output.offset_of,
            index=output.index,
            is_first_of_prompt=output.is_first_of_prompt,
        )
        choice: dict[str, Any] = {
            "index": output.index,
            **self.form.body(piece),
            **self._ending(output, output.summary),
        }
        if len(self.outputs.all) > 1:
            choice["metrics"] = generation_metrics(output.summary)
        if output.rounds:
            choice["specpair"] = {"rounds": rows(output.rounds, output.rounds)}
        return choice

    def _piece_chunks(self, output: Output, response: pb.GenerateTokensResponse) -> list[dict[str, Any]]:
        """The chunk for the next piece; none if it says nothing, as while it is uncertain what its text is part of."""
        part, has_round = self.form.chunk(self._piece(output, response)), response.HasField("round")
        if not any(part.values()) and not has_round:
            return []
        choice = {"index": output.index, **part, "finish_reason": None}
        chunk = {**self._chunk_head(), "choices": [choice]}
        return [{**chunk, "specpair": round_document(response)} if has_round else chunk]

    def _finish_chunk(self, output: Output, summary: pb.GenerationSummary) -> dict[str, Any]:
        piece = self._piece(output, pb.GenerateTokensResponse(), is_last=True)
        choice = {"index": output.index, **self.form.chunk(piece), **self._ending(output, summary)}
        return {**self._chunk_head(), "choices": [choice], "metrics": generation_metrics(summary)}

    def _piece(self, output: Output, response: pb.GenerateTokensResponse, *, is_last: bool = False) -> Piece:
        """The next piece of an output."""
        is_first = not output.is_told
        output.is_told = True
        return Piece(
            text=response.text,
            tokens=response.tokens,
            prompt_tokens=output.prompt_tokens if is_first else (),
            offset_of=output.offset_of,
            index=output.index,
            is_first=is_first,
            is_last=is_last,
            is_first_of_prompt=output.is_first_of_prompt,
        )

    def _ending(self, output: Output, summary: pb.GenerationSummary) -> dict[str, Any]:
        reason = self.form.finish_reason(output.index, FINISH_REASONS[summary.finish_reason])
        ending: dict[str, Any] = {"finish_reason": reason, "seed": summary.seed}
        return {**ending, "beam_score": summary.beam_score} if summary.HasField("beam_score") else ending

    def _chunk_head(self) -> dict[str, Any]:
        """If the last chunk has the usage, all others have `usage: null`, as OpenAI's do."""
        head = self._head(self.form.names.chunk)
        return {**head, "usage": None} if self.include_usage else head

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = f"{self.form.names.id_prefix}-"
        return {"id": prefix + self.request_id, "object": kind, "created": self.created, "model": self.model}
