"""Assembles a request's outputs from Serving's responses, and their totals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coordinator.http.rounds import round_document
from coordinator.http.text_offsets import TextOffsets
from coordinator.requests.tokenizer import Tokenizer
from specpair.rpc.generation_metrics import generation_metrics, total
from specpair.v1 import coordinator_service_pb2 as pb

FINISH_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The parts of the request that are needed to read its responses."""

    n: int = 1
    """Outputs of each prompt."""
    echo: bool = False
    tokenizer: Tokenizer | None = None
    prompts: Sequence[Sequence[int]] = ()
    """The token ids of each prompt; empty for a prompt that came as text."""


@dataclass(kw_only=True)
class Output:
    """One output, as far as it was received."""

    asked: Asked
    index: int
    text: list[str] = field(default_factory=list)
    """Its pieces."""
    tokens: list[pb.GeneratedToken] = field(default_factory=list)
    prompt_tokens: list[pb.GeneratedToken] = field(default_factory=list)
    """Those of its prompt, if requested; shared by all outputs of one prompt."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    summary: pb.GenerationSummary | None = None
    is_told: bool = False
    """Whether a piece of it was sent to the client."""
    _text_start: int | None = None
    """Where the text of its first token begins: after the prompt with echo. None before its first response."""

    @property
    def is_first_of_prompt(self) -> bool:
        return self.index % self.asked.n == 0

    def offset_of(self, token_id: int) -> int:
        """Where the next token, `token_id`, begins in the output's text."""
        return self._offsets.of(token_id)

    @cached_property
    def _offsets(self) -> TextOffsets:
        assert self._text_start is not None
        given = self.asked.prompts[self.index // self.asked.n] if self.asked.prompts else ()
        context = given or [token.id for token in self.prompt_tokens]
        if not context and self.asked.tokenizer is not None:
            context = self.asked.tokenizer.reference_ids
        return TextOffsets(self.asked.tokenizer, context, self._text_start)

    def take(self, response: pb.GenerateTokensResponse) -> None:
        """Takes the prompt and the summary, which streams need as well."""
        self.prompt_tokens.extend(response.prompt_tokens)
        if response.HasField("summary"):
            self.summary = response.summary
        if self._text_start is None and not response.prompt_tokens:
            self._text_start = len(response.text) if self.asked.echo else 0

    def add(self, response: pb.GenerateTokensResponse) -> None:
        """Adds a response to the whole output."""
        self.take(response)
        self.text.append(response.text)
        self.tokens.extend(response.tokens)
        if response.HasField("round"):
            self.rounds.append(round_document(response))


class Outputs:
    """The outputs of a request, as far as they were received: `n` for each prompt, those of the first prompt first."""

    def __init__(self, asked: Asked):
        self._asked = asked
        self._outputs: dict[int, Output] = {}
        self._prompt_tokens: dict[int, list[pb.GeneratedToken]] = {}
        self.passed_over: list[pb.GenerationSummary] = []
        """Summaries of outputs that best_of generated and did not choose."""

    def of(self, prompt_index: int, response: pb.GenerateTokensResponse) -> Output:
        """The output that a response belongs to."""
        index = prompt_index * self._asked.n + response.choice_index
        if index not in self._outputs:
            prompt_tokens = self._prompt_tokens.setdefault(prompt_index, [])
            self._outputs[index] = Output(asked=self._asked, index=index, prompt_tokens=prompt_tokens)
        return self._outputs[index]

    def add(self, prompt_index: int, response: pb.GenerateTokensResponse) -> None:
        self.of(prompt_index, response).add(response)

    @property
    def all(self) -> list[Output]:
        """In the order of their indices."""
        return [self._outputs[index] for index in sorted(self._outputs)]

    @property
    def summaries(self) -> list[pb.GenerationSummary]:
        """Summaries of all finished outputs, chosen or not."""
        return [*(output.summary for output in self.all if output.summary is not None), *self.passed_over]

    def usage(self) -> dict[str, Any]:
        """Total token counts. A prompt counts once, whatever the number of its outputs."""
        firsts = [output.summary for output in self.all if output.is_first_of_prompt and output.summary is not None]
        prompt_count = sum(summary.encoder_token_count + summary.prompt_token_count for summary in firsts)
        completion_count = sum(summary.completion_token_count for summary in self.summaries)
        return {
            "prompt_tokens": prompt_count,
            "completion_tokens": completion_count,
            "total_tokens": prompt_count + completion_count,
            "prompt_tokens_details": {"cached_tokens": sum(summary.cached_prompt_token_count for summary in firsts)},
        }

    def metrics(self) -> dict[str, object]:
        """The metrics of all finished outputs together."""
        return generation_metrics(total(self.summaries))
