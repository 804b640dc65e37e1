"""One call of a client, as a front end passes it on."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.deadline import NEVER, Deadline
from coordinator.requests.reasoning import Reasoning
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request with the facts of its call."""

    request: pb.GenerateTokensRequest
    arrival: float = field(default_factory=time.perf_counter)
    """The time.perf_counter at which it arrived."""
    request_id: str | None = None
    """Its name in the log; if None, the first sequence names it."""
    trace_context: str = ""
    """The client's traceparent header."""
    deadline: Deadline = NEVER
    """The client's deadline."""
    shares: int = 1
    """Number of requests that are answered together, this one included."""
    is_admitted: bool = False
    """Whether it already has its places, from Serving.admit."""
    passed_over: list[pb.GenerationSummary] = field(default_factory=list)
    """Receives the summaries of outputs that best_of did not choose."""
    reasoning: Reasoning | None = None
    """What comes before the answers to a conversation: a structured output is that of the answer alone. Receives where
    the outputs begin. None if all text is the answer."""
    shown: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that the outputs show, with their texts: by them the front end finds the parts of an answer."""
