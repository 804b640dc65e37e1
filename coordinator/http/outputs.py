"""What came for a request, put together again: a piece of one output, whole outputs, and their sums."""

from dataclasses import dataclass, field
from typing import Any

from coordinator.http.rounds import round_document
from specpair.rpc.generation_metrics import generation_metrics, total
from specpair.v1 import coordinator_service_pb2 as pb

FINISH_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


@dataclass(kw_only=True)
class Output:
    """One output, whole or as far as it has come."""

    index: int
    text: list[str] = field(default_factory=list)
    """Its pieces."""
    tokens: list[pb.GeneratedToken] = field(default_factory=list)
    prompt_tokens: list[pb.GeneratedToken] = field(default_factory=list)
    """Those of its prompt, if they are wanted; shared by all outputs of one prompt."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    summary: pb.GenerationSummary | None = None

    def add(self, response: pb.GenerateTokensResponse) -> None:
        self.prompt_tokens.extend(response.prompt_tokens)
        self.text.append(response.text)
        self.tokens.extend(response.tokens)
        if response.HasField("round"):
            self.rounds.append(round_document(response))
        if response.HasField("summary"):
            self.summary = response.summary


class Outputs:
    """The outputs of a request as far as they have come: `n` for each prompt, those of the first prompt first."""

    def __init__(self, n: int):
        self._n = n
        self._outputs: dict[int, Output] = {}
        self._prompt_tokens: dict[int, list[pb.GeneratedToken]] = {}

    def of(self, prompt_index: int, response: pb.GenerateTokensResponse) -> Output:
        """The output that a response belongs to."""
        index = prompt_index * self._n + response.choice_index
        if index not in self._outputs:
            prompt_tokens = self._prompt_tokens.setdefault(prompt_index, [])
            self._outputs[index] = Output(index=index, prompt_tokens=prompt_tokens)
        return self._outputs[index]

    def add(self, prompt_index: int, response: pb.GenerateTokensResponse) -> None:
        self.of(prompt_index, response).add(response)

    @property
    def all(self) -> list[Output]:
        """In the order of their indices."""
        return [self._outputs[index] for index in sorted(self._outputs)]

    @property
    def summaries(self) -> list[pb.GenerationSummary]:
        """Of the finished ones."""
        return [output.summary for output in self.all if output.summary is not None]

    def usage(self) -> dict[str, int]:
        """Tokens in all. A prompt counts once, however many outputs it has."""
        firsts = [output.summary for output in self.all if output.index % self._n == 0 and output.summary is not None]
        prompt_count = sum(summary.prompt_token_count for summary in firsts)
        completion_count = sum(summary.completion_token_count for summary in self.summaries)
        return {
            "prompt_tokens": prompt_count,
            "completion_tokens": completion_count,
            "total_tokens": prompt_count + completion_count,
        }

    def metrics(self) -> dict[str, object]:
        """The numbers of all finished outputs together."""
        return generation_metrics(total(self.summaries))
