"""Answers of the model services as plain data. Messages count microseconds; here times are in seconds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.peers.own_order import OwnOrder
from specpair.errors import SpecpairError
from specpair.options import MAX_UINT32
from specpair.speculation.trees.depths import depths
from specpair.v1 import logprobs_pb2, proposal_pb2, target_service_pb2


class CallTimes(NamedTuple):
    """How long one call took, in seconds."""

    started_at: float
    """When the call was made, by time.perf_counter."""
    elapsed: float
    """From the call to the answer, measured by the coordinator."""
    queue: float
    compute: float
    rollback: float = 0.0
    """Time that the cache took to roll back tokens."""

    @property
    def outside(self) -> float:
        """Time that was not computation: network, queue, rollback."""
        return max(self.elapsed - self.compute, 0.0)


def no_time() -> CallTimes:
    """Of a proposal that was there when its round began."""
    return time_until_now(0.0)


def time_until_now(seconds: float) -> CallTimes:
    """Of a proposal that a head of the target has just made."""
    return CallTimes(started_at=time.perf_counter() - seconds, elapsed=seconds, queue=0.0, compute=seconds)


class SaysTimes(Protocol):
    """The times in an answer of either service."""

    @property
    def compute_time_us(self) -> int: ...
    @property
    def queue_time_us(self) -> int: ...
    @property
    def rollback_time_ns(self) -> int: ...


def call_times(started_at: float, answer: SaysTimes) -> CallTimes:
    """Times of a call made at `started_at` and answered now. The service's own times are cut to the elapsed time."""
    elapsed = time.perf_counter() - started_at
    return CallTimes(
        started_at=started_at,
        elapsed=elapsed,
        queue=min(answer.queue_time_us * 1e-6, elapsed),
        compute=min(answer.compute_time_us * 1e-6, elapsed),
        rollback=min(answer.rollback_time_ns * 1e-9, elapsed),
    )


def early_call_times(started_at: float, answer: SaysTimes) -> CallTimes:
    """The same of a call that the service may have begun with before it was made: it then counts from that moment, and
    what it had waited before is no time of the call."""
    compute = answer.compute_time_us * 1e-6
    times = call_times(min(started_at, time.perf_counter() - compute), answer)
    return times._replace(queue=min(times.queue, times.outside))


def proposing_time(answer: target_service_pb2.VerifyProposalResponse, times: CallTimes) -> float:
    """Seconds of the target's computation in which its own head proposed; a repeated call is answered sooner than that
    took, and has as large a share of it."""
    share = answer.proposing_time_us / answer.compute_time_us if answer.compute_time_us else 0.0
    return min(share, 1.0) * times.compute


@dataclass(frozen=True, kw_only=True)
class DraftShare:
    """What one of several drafts gave to a proposal that was merged."""

    name: str
    nodes: tuple[int, ...] = ()
    """Its tokens, by their indices in the proposal."""
    is_late: bool = False
    """Whether the round did not wait for it."""


class GuessCounts(NamedTuple):
    """What accelerated a draft's model."""

    guessed_token_count: int = 0
    accepted_guess_count: int = 0
    pass_count: int = 0

    def plus(self, other: "GuessCounts") -> "GuessCounts":
        """The sums, at most what a message can have: each draft says its own counts."""
        return GuessCounts(*(min(own + more, MAX_UINT32) for own, more in zip(self, other, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """The draft's answer to one round."""

    proposal: proposal_pb2.Proposal
    """Passed on to the target unchanged; only its token ids are read."""
    times: CallTimes
    is_usual: bool = True
    """Whether its time is typical: no sequence was opened for it, and the draft had few tokens to catch up."""
    was_prepared: bool = False
    """Whether the draft had prepared it, or had begun to, when it was called."""
    ahead: AheadOutcome | None = None
    """What working ahead gave; None if the draft was not working ahead."""
    waited: float | None = None
    """Seconds that the round waited for it, if it came ahead of the answer; else that is the time of the call."""
    asked_for: float | None = None
    """Seconds of the call for its distributions, if its tokens had come before; the target worked on them meanwhile."""
    shares: tuple[DraftShare, ...] = ()
    """Of the drafts whose proposals were merged into it; empty for a draft alone."""
    guesses: GuessCounts | None = None
    """What was guessed for the draft's model; None if it is not accelerated."""

    @property
    def token_ids(self) -> Sequence[int]:
        return self.proposal.token_ids

    @property
    def parents(self) -> Sequence[int]:
        """Of a tree; empty for a chain."""
        return self.proposal.parent_indices

    @cached_property
    def depth(self) -> int:
        """Tokens of its longest path: those that could all be accepted."""
        return max(depths(self.parents), default=0) if self.parents else len(self.token_ids)

    @property
    def waiting(self) -> float:
        """Seconds that the round waited for it."""
        return self.times.elapsed if self.waited is None else self.waited

    @property
    def waited_compute(self) -> float:
        """Seconds of its computation for which the round waited."""
        return min(self.times.compute, self.waiting)

    @property
    def hidden(self) -> float:
        """Seconds of its computation for which the round did not wait."""
        return self.times.compute - self.waited_compute


MOST_TOKENS = 64
"""Of a proposal: no service can be set to more."""


class RunCounts(NamedTuple):
    """Of a round of a run: the tokens that a head of the target proposed, and those of them that were accepted."""

    depth: int
    """Proposed tokens of which all could be accepted: of a tree those of its longest path."""
    accepted_count: int
    tree_token_count: int = 0
    """All tokens of a tree; 0 for a chain."""
    ended_at_leaf: bool = False
    """Whether a tree had no token after the accepted ones."""

    @property
    def proposed_count(self) -> int:
        return self.tree_token_count or self.depth

    @property
    def is_whole(self) -> bool:
        """Whether nothing was proposed after the accepted tokens."""
        return self.ended_at_leaf if self.tree_token_count else self.accepted_count == self.depth

    def is_possible(self, asked_count: int) -> bool:
        """Whether a proposal of so many tokens, or a tree of so many levels, can have come to this."""
        if not self.accepted_count <= self.depth <= asked_count:
            return False
        if not self.tree_token_count:
            return not self.ended_at_leaf
        is_end = self.accepted_count == self.depth  # a leaf, as one of the longest path
        return 0 < self.depth <= self.tree_token_count <= MOST_TOKENS and self.ended_at_leaf >= is_end


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The target's answer to one round."""

    path: tuple[int, ...]
    """The accepted tokens, as indices into the proposal, in order: 0, 1, ... for a chain."""
    next_token_id: int
    times: CallTimes
    batch_token_count: int = 1
    """Tokens in the target's forward pass, those of other sequences included."""
    logprobs: Sequence[logprobs_pb2.TokenLogprobs] = ()
    """One entry for each committed token, if the sequence was opened with logprobs."""
    target_probabilities: Sequence[float] = ()
    """Of the proposed tokens, if requested."""
    draft_probabilities: Sequence[float] = ()
    """Of the proposed tokens; also empty if the draft sent no distributions."""
    proposal: proposal_pb2.Proposal | None = None
    """A proposal for the next round, from a target that drafts itself; else None."""
    run_ids: Sequence[int] = ()
    """The tokens of a run after its first round."""
    run_counts: Sequence[RunCounts] = ()
    """Of each of these rounds; empty if nothing was proposed in any of them."""
    forced_ids: Sequence[int] = ()
    """The only tokens that the structured output allows after the next token, if requested."""
    has_gone_on_plain: bool = False
    """Whether the target has begun with the next round, without a proposal."""
    cached_token_count: int = 0
    """Tokens of the sequence that the target had in its cache when it opened it."""
    begun_before: float = 0.0
    """Seconds for which the target had worked on it before the call was made."""
    proposing_time: float = 0.0
    """Seconds of its computation in which the target's head proposed, in each round of a run for the one after it."""

    @property
    def accepted_count(self) -> int:
        return len(self.path)

    @property
    def pass_count(self) -> int:
        """Forward passes that gave tokens."""
        return 1 + len(self.run_counts or self.run_ids)

    @property
    def times_alone(self) -> CallTimes:
        """Its times without what a head took to propose, at the end of the call."""
        times, proposing = self.times, self.proposing_time
        return times._replace(elapsed=times.elapsed - proposing, compute=times.compute - proposing)

    @property
    def proposing_share(self) -> float:
        """`proposing_time` for one of its passes."""
        return self.proposing_time / self.pass_count

    @property
    def run_rounds(self) -> Sequence[RunCounts]:
        """The rounds of a run after the first."""
        return self.run_counts or [RunCounts(0, 0)] * len(self.run_ids)

    def passes_for(self, count: int) -> int:
        """The passes that gave the first `count` of its committed tokens; at least one."""
        passes, reached = 1, self.accepted_count + 1
        for one in self.run_rounds:
            if reached >= count:
                break
            passes, reached = passes + 1, reached + one.accepted_count + 1
        return passes

    @property
    def committed_count(self) -> int:
        """Tokens that the target has committed."""
        return self.accepted_count + 1 + len(self.run_ids)


def accepted_path(
    answer: target_service_pb2.VerifyProposalResponse, proposal: proposal_pb2.Proposal | None
) -> tuple[int, ...]:
    """Indices of the accepted tokens. Raises SpecpairError if they are no path of the proposal."""
    drafted_count = 0 if proposal is None else len(proposal.token_ids)
    if answer.accepted_count > drafted_count:
        raise SpecpairError(f"the target accepted {answer.accepted_count} of {drafted_count} tokens")
    parents = () if proposal is None else tuple(proposal.parent_indices)
    path = tuple(answer.accepted_path)
    if not parents:
        path = path or tuple(range(answer.accepted_count))  # an older target sends none
        is_path = path == tuple(range(answer.accepted_count))
    else:
        is_path = all(0 <= index < drafted_count for index in path) and len(path) == answer.accepted_count
        is_path = is_path and [parents[index] for index in path] == [-1, *path][: len(path)]
    if not is_path:
        raise SpecpairError(f"the target accepted {list(path)}, which is no path of the proposal")
    return path


def run_counts(answer: target_service_pb2.VerifyProposalResponse, order: OwnOrder) -> tuple[RunCounts, ...]:
    """Of the rounds of a run after the first; empty if nothing was proposed. Raises SpecpairError if they do not fit
    its tokens, or are more than were asked for."""
    proposed, accepted = answer.run_proposed_counts, answer.run_accepted_counts
    trees, leaves = answer.run_tree_token_counts, answer.run_ended_at_leaf
    if len(proposed) != len(accepted) or len(trees) != len(leaves) or len(trees) not in (0, len(proposed)):
        raise SpecpairError("the target gave unequal numbers of proposals and verdicts of a run")
    parts = (proposed, accepted, trees, leaves) if trees else (proposed, accepted)
    counts = tuple(map(RunCounts, *parts))
    if not all(one.is_possible(order.count) for one in counts):
        raise SpecpairError(f"the target gave a run with {counts}; {order.count} proposed tokens were asked for")
    if counts and sum(1 + one.accepted_count for one in counts) != len(answer.run_token_ids):
        raise SpecpairError(f"the target gave {len(answer.run_token_ids)} tokens for a run with {counts}")
    if 1 + len(counts or answer.run_token_ids) > order.run_length:
        given = 1 + len(counts or answer.run_token_ids)
        raise SpecpairError(f"the target gave a run of {given}; {order.run_length} were asked for")
    return counts


def forced_tokens(answer: target_service_pb2.VerifyProposalResponse, most: int) -> tuple[int, ...]:
    """The forced tokens. Raises SpecpairError if they are more than `most`."""
    if len(answer.forced_token_ids) > most:
        raise SpecpairError(f"the target named {len(answer.forced_token_ids)} forced tokens; {most} were asked for")
    return tuple(answer.forced_token_ids)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The target's logprobs for the tokens of a text."""

    instance_id: str
    logprobs: Sequence[logprobs_pb2.TokenLogprobs]
    """One entry for each token but the first."""
