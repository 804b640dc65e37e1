"""The outputs of a beam search: the best beams, sent when the search has ended."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from coordinator.deadline import NEVER, Deadline
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.beam_passes import BeamPasses
from coordinator.outputs.choices import ChoicePart
from coordinator.outputs.counted_output import CountedOutput
from coordinator.outputs.output import Output
from coordinator.outputs.output_part import Origin, OutputPart
from coordinator.outputs.sources import chosen
from coordinator.pair import Pair
from coordinator.peers import BeamDraftSession, BeamTargetSession, Drafts
from coordinator.requests.request import GenerationRequest
from specpair.options import Drafter
from specpair.speculation.beams.beam_search import Beam

PIECE = 1024
"""Tokens in a part: the longest outputs fit into no message."""


@dataclass(frozen=True, kw_only=True)
class BeamProposals:
    """What continues the beams."""

    asked_drafter: Drafter | None
    is_adaptive: bool


@dataclass(kw_only=True)
class BeamOutput:
    """One beam of the result. The first of them has the numbers of the search, so that sums are right."""

    request: GenerationRequest
    sequence_id: str
    output: Output
    acceptance: Acceptance
    proposals: BeamProposals
    arrival: float
    beam_score: float | None = None
    """None before the search has ended."""
    cached_prompt_token_count: int = 0
    time_to_first_token: float = 0.0
    has_logprobs: bool = False
    cumulative_logprob: float = 0.0
    closing: asyncio.Task[None] | None = None

    @property
    def total_time(self) -> float:
        """Seconds since the arrival."""
        return time.perf_counter() - self.arrival

    def parts(self, beam: Beam) -> Iterator[OutputPart]:
        """The tokens and the text of the beam, which is this output."""
        self.beam_score = beam.score
        lead = self.request.prompt_text
        for first in range(0, len(beam.tokens), PIECE):
            committed = self.output.commit(beam.tokens[first : first + PIECE])
            tokens = beam.tokens[first : first + committed.kept_count]
            is_last = self.output.finish_reason is not None
            origins = [Origin.TARGET] * len(tokens)
            yield OutputPart(token_ids=tokens, origins=origins, text=lead + committed.text, is_last=is_last)
            lead = ""


class BeamOutputs:
    """Runs the beam search of a request, in place of Choices."""

    def __init__(
        self, request: GenerationRequest, pair: Pair, arrival: float | None = None, deadline: Deadline = NEVER
    ):
        """`arrival` is the time.perf_counter at which the request arrived, now if None; `deadline` is that of its
        client."""
        assert request.beams is not None
        self._request = request
        self._pair = pair
        self._arrival = time.perf_counter() if arrival is None else arrival
        self._sequence_id = secrets.token_hex(16)
        options = request.sequence_options(pair.target.info.vocab_size)
        config, prompt_length = pair.config, len(request.prompt_ids)
        self._target = BeamTargetSession(
            pair.target,
            self._sequence_id,
            prompt_length,
            options,
            config.target_timeout,
            length=prompt_length + request.max_tokens,
            deadline=deadline,
        )
        self._draft = None
        drafts = drafts_of(request, pair)
        info = None if drafts is None else drafts.info
        if drafts is not None and info is not None and info.runs_beams and request.num_speculative_tokens != 0:
            times = (config.draft_timeout, config.draft_cooldown)
            self._draft = BeamDraftSession(drafts, self._sequence_id, prompt_length, options, *times, deadline=deadline)
        self._passes = BeamPasses(request, pair, self._target, self._draft)
        proposals = BeamProposals(
            asked_drafter=None if self._draft is None else Drafter.MODEL,
            is_adaptive=self._draft is not None and request.num_speculative_tokens is None,
        )
        self._outputs = [
            BeamOutput(
                request=request,
                sequence_id=self._sequence_id,
                output=Output(request, pair.target.tokenizer),
                acceptance=Acceptance() if index else self._passes.acceptance,
                proposals=proposals,
                arrival=self._arrival,
            )
            for index in range(request.n)
        ]
        self.generations: list[CountedOutput] = list(self._outputs)
        self.passed_over: list[CountedOutput] = []
        """Other beams are not reported."""

    async def parts(self) -> AsyncGenerator[ChoicePart, None]:
        """The parts of the best beams, best first, once the search has ended. Both sequences are closed then."""
        try:
            history = list(self._request.prompt_ids)
            if self._draft is not None and self._passes.asks_early:
                self._draft.start(history)
            await self._target.open(history)
            await self._passes.run(self._sequence_id)
        finally:
            closing = self._pair.background.spawn(self._close())
            for output in self._outputs:
                output.closing = closing
        self._pair.metrics.beams.add_search()
        for index, (output, beam) in enumerate(zip(self._outputs, self._passes.search.finished, strict=False)):
            output.time_to_first_token = output.total_time
            output.cached_prompt_token_count = self._passes.cached_prompt_token_count
            self._pair.metrics.requests.add_beam(len(beam.tokens), output.time_to_first_token)
            for part in output.parts(beam):
                yield ChoicePart(index, output, part)

    async def _close(self) -> None:
        sessions = [self._target] if self._draft is None else [self._target, self._draft]
        await asyncio.gather(*(session.close() for session in sessions))


def drafts_of(request: GenerationRequest, pair: Pair) -> Drafts | None:
    """The one draft that continues the beams: the one that the request names, else the first."""
    if len(request.drafts) != 1 or pair.draft is None:
        return pair.draft
    return chosen(pair, request.drafts)[0]
