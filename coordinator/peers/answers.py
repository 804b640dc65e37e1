"""What the model services answer, as plain data. The wire counts microseconds; here and above all times are seconds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from specpair.errors import SpecpairError
from specpair.v1 import features_pb2, logprobs_pb2, proposal_pb2, target_service_pb2


class CallTimes(NamedTuple):
    """How long one call took, in seconds."""

    started_at: float
    """When the call was made, by time.perf_counter."""
    elapsed: float
    """From the call to the answer, as seen from here."""
    queue: float
    compute: float
    rollback: float = 0.0
    """What the cache took to drop tokens that were rolled back."""

    @property
    def outside(self) -> float:
        """What was not computation: the way, the queue, the rollback."""
        return max(self.elapsed - self.compute, 0.0)


class SaysTimes(Protocol):
    """An answer of either service."""

    @property
    def compute_time_us(self) -> int: ...
    @property
    def queue_time_us(self) -> int: ...
    @property
    def rollback_time_ns(self) -> int: ...


def call_times(started_at: float, answer: SaysTimes) -> CallTimes:
    """Of a call that was made at `started_at` and is answered now. Whatever a service says, it took no longer."""
    elapsed = time.perf_counter() - started_at
    return CallTimes(
        started_at=started_at,
        elapsed=elapsed,
        queue=min(answer.queue_time_us * 1e-6, elapsed),
        compute=min(answer.compute_time_us * 1e-6, elapsed),
        rollback=min(answer.rollback_time_ns * 1e-9, elapsed),
    )


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """The draft's answer to one round."""

    proposal: proposal_pb2.Proposal
    """Passed on unopened; only its token ids are looked at."""
    times: CallTimes
    is_usual: bool = True
    """Whether it took as long as others do: it opened nothing, and had few tokens to catch up."""

    @property
    def token_ids(self) -> Sequence[int]:
        return self.proposal.token_ids


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The target's answer to one round."""

    path: tuple[int, ...]
    """The accepted tokens, as indices into the proposal, each behind the one before: 0, 1, ... for a chain."""
    next_token_id: int
    times: CallTimes
    batch_token_count: int = 1
    """Tokens in the target's forward pass, those of other sequences included."""
    logprobs: Sequence[logprobs_pb2.TokenLogprobs] = ()
    """One entry for each committed token, if the sequence was opened with logprobs."""
    target_probabilities: Sequence[float] = ()
    """Of the proposed tokens, if asked for."""
    draft_probabilities: Sequence[float] = ()
    """The same; empty, too, where no distributions were sent."""
    features: features_pb2.Features | None = None
    """Of the target's layers, for a drafter that reads them; None if it sent none."""
    proposal: proposal_pb2.Proposal | None = None
    """For the next round, from a target that drafts itself; None if it does not."""

    @property
    def accepted_count(self) -> int:
        return len(self.path)


def accepted_path(answer: target_service_pb2.VerifyProposalResponse, drafted_count: int) -> tuple[int, ...]:
    """The indices of the accepted tokens. Raises SpecpairError if they do not fit a proposal of so many tokens."""
    if answer.accepted_count > drafted_count:
        raise SpecpairError(f"the target accepted {answer.accepted_count} of {drafted_count} tokens")
    path = tuple(range(answer.accepted_count))
    if answer.accepted_path and tuple(answer.accepted_path) != path:  # an older target sends none
        raise SpecpairError(f"the target accepted {list(answer.accepted_path)}, which is no path of a chain")
    return path


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How likely the target finds each token of a text."""

    instance_id: str
    logprobs: Sequence[logprobs_pb2.TokenLogprobs]
    """One entry for each token but the first."""
