"""An output as summaries, metrics and the log read it, however it was generated."""

import asyncio
from typing import Protocol

from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.output import Output
from coordinator.requests.request import GenerationRequest
from specpair.options import Drafter


class CountedProposals(Protocol):
    """What proposed tokens."""

    @property
    def is_adaptive(self) -> bool: ...
    @property
    def asked_drafter(self) -> Drafter | None:
        """None if none was asked."""
        ...


class CountedOutput(Protocol):
    """A Generation, or a beam."""

    @property
    def request(self) -> GenerationRequest: ...
    @property
    def sequence_id(self) -> str: ...
    @property
    def output(self) -> Output: ...
    @property
    def cached_prompt_token_count(self) -> int: ...
    @property
    def acceptance(self) -> Acceptance: ...
    @property
    def proposals(self) -> CountedProposals: ...
    @property
    def time_to_first_token(self) -> float: ...
    @property
    def total_time(self) -> float: ...
    @property
    def has_logprobs(self) -> bool: ...
    @property
    def cumulative_logprob(self) -> float: ...
    @property
    def beam_score(self) -> float | None: ...
    @property
    def closing(self) -> asyncio.Task[None] | None: ...
