"""One call of a client, as a front end hands it on."""

import time
from dataclasses import dataclass, field

from coordinator.deadline import NEVER, Deadline
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is asked for, and what is known of whoever asks."""

    request: pb.GenerateTokensRequest
    arrival: float = field(default_factory=time.perf_counter)
    """The time.perf_counter at which it came in."""
    request_id: str | None = None
    """Names it in the log; None for one that is named by its first sequence."""
    trace_context: str = ""
    """The traceparent of its client."""
    deadline: Deadline = NEVER
    """Until when its client wants to have the answer."""
    shares: int = 1
    """Requests that are answered in one piece, this one included."""
    is_admitted: bool = False
    """Whether it has its places, by Serving.admit."""
    passed_over: list[pb.GenerationSummary] = field(default_factory=list)
    """Gets the numbers of outputs that best_of did not choose."""
