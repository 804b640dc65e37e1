"""What the model services answer, as plain data."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from specpair.v1 import logprobs_pb2, proposal_pb2


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """The draft's answer to one round."""

    proposal: proposal_pb2.Proposal
    """Passed on unopened; only its token ids are looked at."""
    compute_time_us: int
    elapsed_us: int
    """From the call to the answer, as seen from here."""
    queue_time_us: int = 0
    rollback_time_ns: int = 0
    """What the cache took to drop tokens that were rolled back."""
    started_at: float = 0.0
    """When the call was made, by time.perf_counter."""

    @property
    def token_ids(self) -> Sequence[int]:
        return self.proposal.token_ids


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The target's answer to one round."""

    accepted_count: int
    next_token_id: int
    compute_time_us: int
    elapsed_us: int
    batch_token_count: int = 1
    """Tokens in the target's forward pass, those of other sequences included."""
    logprobs: Sequence[logprobs_pb2.TokenLogprobs] = ()
    """One entry for each committed token, if the sequence was opened with logprobs."""
    queue_time_us: int = 0
    rollback_time_ns: int = 0
    """What the cache took to drop tokens that were rolled back."""
    started_at: float = 0.0
    """When the call was made, by time.perf_counter."""
    target_probabilities: Sequence[float] = ()
    """Of the proposed tokens, if asked for."""
    draft_probabilities: Sequence[float] = ()
    """The same; empty, too, where no distributions were sent."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How likely the target finds each token of a text."""

    instance_id: str
    logprobs: Sequence[logprobs_pb2.TokenLogprobs]
    """One entry for each token but the first."""


def elapsed_us(start: float) -> int:
    """Microseconds since a reading of time.perf_counter."""
    return round((time.perf_counter() - start) * 1e6)
