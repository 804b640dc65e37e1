"""A verification call, its verdict, and the engine's work between them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from specpair.engine.work import Work
from specpair.grammars.grammar import RowMask
from specpair.options import SequenceOptions
from specpair.sequences.conditional_calls import Begun, WaitingCall, give_up
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.counted_rows import CountedRows, SentRows
from specpair.speculation.logprobs import TokenLogprobs
from specpair.speculation.trees.drawn_tree import DrawnTree
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from target_service.judged_round import JudgedRound
from target_service.late_rows import LateRows, WithheldBody
from target_service.own_proposal import OwnProposal

MOST_RUN = 64
"""Verdicts of one call, at most."""
MOST_RUN_SECONDS = 60.0
ANSWER_BYTES = 1024
ENTRY_BYTES = 100
"""Memory of a token and its logprob; of a round of a run, and of each of its tokens."""


class VerifyCall(NamedTuple):
    """A decoded call, checked for form. Between two passes the device thread makes one for each sequence, so it is of a
    kind that is quickly made."""

    sequence_id: str
    step: int
    base_length: int
    appended: list[int]
    proposed: list[int]
    draft: SentRows
    """The distributions of the proposed tokens of a chain, `[K, support]`."""
    tree: TokenTree | None = None
    """The proposed tokens, if they are a tree and no chain."""
    drawn: DrawnTree | None = None
    """How the tree was drawn; None if its tokens were certain, or there is none."""
    include_probabilities: bool = False
    feature_layers: tuple[int, ...] = ()
    """Layers whose hidden states are requested."""
    kept_step: int | None = None
    """The step whose verdict came with this proposal, if the target drew it; `draft` is then to be found there."""
    next_count: int = 0
    """Tokens that the target's own head shall propose for the next step."""
    next_min_confidence: float = 0.0
    """It ends with the token after which its tokens together have a smaller probability; 0 if it does not."""
    max_forced: int = 0
    """Forced tokens to name with the verdict, at most."""
    late: LateRows | None = None
    """Where the distributions come to, if they were not sent with the tokens; `draft` stands for them until then."""
    run_length: int = 1
    """Verdicts to give, at most: each by a pass of its own, the first with the draws of `step`."""
    run_seconds: float = 0.0
    """How long they may take; 0 without a limit."""


class ConditionalRequest(NamedTuple):
    """A call that depends on a verdict. Most of them are dropped, so it is decoded only when it is needed."""

    sequence_id: str
    step: int
    size: int
    """Bytes."""
    body: Callable[[], bytes | WithheldBody]
    """What identifies a repetition."""
    decode: Callable[[], VerifyCall]


class VerdictCondition(NamedTuple):
    """The verdict that a call depends on."""

    step: int
    accepted_count: int
    next_token: int

    def is_met_by(self, answer: "Verdict | VerifyWork") -> bool:
        """The work is asked on the device thread, which knows the verdict first."""
        if len(answer.rounds) != 1:
            return False
        return (answer.rounds[0].accepted_count, answer.next_token) == (self.accepted_count, self.next_token)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of verifying a proposal."""

    path: list[int]
    """Indices of the accepted tokens among the proposed ones, from the first on. Of a run in its first round."""
    rounds: Sequence[JudgedRound]
    """The verdict, and those of a run after it."""
    length: int
    """Number of committed tokens after the call."""
    logprobs: list[TokenLogprobs]
    """Of the committed tokens, if the sequence requests them."""
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the verdict, without a wait for distributions that came later."""
    batch_token_count: int
    """Tokens in its largest forward pass, including those of other sequences; of a run in the mean of its passes."""
    target_probabilities: list[float]
    """The target's probabilities of the proposed tokens, if requested."""
    draft_probabilities: list[float]
    """The draft's probabilities of the proposed tokens, if requested; empty if no distributions were sent."""
    rollback_time: float
    """Seconds that the cache took for the rollback."""
    proposing_time: float = 0.0
    """Of the compute time, seconds in which the target's own head proposed, for all sequences of its passes."""
    features: Tensor | None = None
    """`[layers, 1 + accepted, hidden]` float32, if requested: the hidden states after each requested layer, of the last
    committed token before the proposal and of each accepted token."""
    proposal: OwnProposal | None = None
    """What the target's own head proposes for the next step, if requested."""
    forced: Sequence[int] = ()
    """The only tokens that the structured output allows after them, if requested. They are not committed."""
    has_gone_on_plain: bool = False
    """Whether the next step has begun, without a proposal, though its call was not here."""
    cached_token_count: int = 0
    """Tokens with which the sequence's cache began."""

    @property
    def next_token(self) -> int:
        """The target's own token after the accepted ones; of a run in its first round."""
        return self.rounds[0].tokens[-1]

    @property
    def byte_count(self) -> int:
        """Approximate memory in bytes."""
        entries = sum(ENTRY_BYTES * (1 + len(entry.top_token_ids)) for entry in self.logprobs)
        entries += sum(ENTRY_BYTES * (1 + len(one.tokens)) for one in self.rounds[1:])
        own = 0 if self.proposal is None else self.proposal.byte_count
        return ANSWER_BYTES + entries + own + (0 if self.features is None else self.features.nbytes)


@dataclass(eq=False, kw_only=True)
class VerifyWork(Work):
    """The engine's work for a call: its rows are the last committed token and the proposed tokens."""

    held: HeldSequence[Verdict]
    call: VerifyCall
    vocab_size: int
    asked: VerifyCall = field(init=False)
    """What the pass under way judges: the call, or what a run goes on to, as if that had been called."""
    first_path: list[int] = field(default_factory=list)
    """The path of the first round."""
    rounds: list[JudgedRound] = field(default_factory=list)
    """The verdicts so far."""
    has_next: bool = False
    """Whether the run goes on after the last of them."""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    target_probabilities: list[float] = field(default_factory=list)
    masking: "Future[list[RowMask]] | None" = None
    """Which tokens may come at each row, if the output is structured; made while the pass runs."""
    own_proposal: OwnProposal | None = None
    """What the target's own head proposes with the verdict."""
    proposing_time: float = 0.0
    """Seconds in which the head proposed, for this work or others of its passes."""
    unjudged: Tensor | None = None
    """Its logits `[K + 1, vocabulary]`, if its pass was over before the distributions of its proposal had come."""
    begun: Begun | None = None
    """What the device thread went on to after the verdict."""
    has_gone_on_plain: bool = False
    """Whether that is a call without a proposal, since no call waited."""

    def __post_init__(self) -> None:
        self.asked = self.call

    @property
    def step(self) -> int:
        """The step whose draws decide in the pass under way."""
        return self.asked.step

    @property
    def next_token(self) -> int:
        """The first token that the target gives by itself, once there is one."""
        return self.rounds[0].tokens[-1]

    def take_rows(self, rows: SentRows) -> None:
        """Takes the distributions that came after the call."""
        self.call = self.asked = self.call._replace(draft=rows, late=None)

    def take(self, path: list[int], token: int) -> None:
        """Takes the accepted tokens, and the one that the target gave by itself, of a pass. It is done then, until the
        run goes on, if it `has_next`."""
        if not self.rounds:
            self.first_path = path
        self.path, tokens = path, [*(self.asked.proposed[index] for index in path), token]
        self.rounds.append(judged_round(self.asked, path, tokens))
        self.done, self.has_next = True, self._has_next(tokens)

    def _has_next(self, tokens: list[int]) -> bool:
        """Whether the run goes on after these tokens: if another pass, as long as those before, ends in its time."""
        call, count = self.call, len(self.rounds)
        if count == call.run_length:
            return False
        if (stops := self.options.sampling.stop_token_ids) and any(token in stops for token in tokens):
            return False
        elapsed = time.perf_counter() - self.started_at
        return not call.run_seconds or elapsed * (count + 1) <= call.run_seconds * count

    def resume(self) -> None:
        """Goes on with a run: the next pass judges what the target's own head has proposed, if anything."""
        if not self.has_next:
            return
        call, length, own = self.asked, len(self.sequence.tokens), self.own_proposal
        proposed = [] if own is None else own.token_ids
        rows = None if own is None else own.rows
        self.asked = call._replace(
            step=call.step + 1,
            base_length=length,
            appended=[],
            proposed=proposed,
            draft=CountedRows.one_hot(proposed, self.vocab_size) if rows is None else rows,
            tree=None if own is None else own.tree,
            drawn=None,
            kept_step=None,
        )
        self.sequence.replace_from(length, proposed)
        self.parents = None if self.asked.tree is None else self.asked.tree.parents
        self.row_count, self.path, self.own_proposal = len(proposed) + 1, [], None
        self.done = self.has_next = False

    @property
    def batch_token_count(self) -> int:
        """Tokens in its largest forward pass, those of other sequences included; of a run in the mean of its passes."""
        if len(self.rounds) > 1:
            return round(self.batch_token_sum / self.batch_count)
        return self.largest_batch.token_count if self.largest_batch else 0

    @property
    def is_midway(self) -> bool:
        """Between two passes of a run it is like a call that has just come."""
        return super().is_midway and not self.rounds

    @property
    def is_followed(self) -> bool:
        """Whether a call waits for this verdict."""
        return self._has_verdict and (self.begun is not None or self._call_after() is not None)

    @property
    def has_missed(self) -> bool:
        return self.unjudged is None and self.held.has_waiting(self.call.step)

    def go_on(self) -> Work | None:
        """The work of the call that waits for this verdict, if it can begin without the event loop."""
        return self._begin(self._call_after()) if self._has_verdict else None

    @property
    def may_go_on_plain(self) -> bool:
        return self._has_verdict and self.held.grammar is None and self._last_resort() is not None

    def go_on_plain(self) -> Work | None:
        """The work of a call without a proposal, which the caller of this one allows."""
        work = self._begin(self._last_resort())
        self.has_gone_on_plain = work is not None
        return work

    def _begin(self, call: WaitingCall[Verdict] | None) -> Work | None:
        """The work of a call that waits for this verdict, if it can begin without the event loop."""
        found = None if call is None or call.begin_on_device is None else call.begin_on_device(self)
        if call is None or found is None:
            return None
        work, finish = found
        self.begun = Begun(call, work, finish)
        return work

    def wake(self) -> None:
        """Hands over what was begun, unless nobody takes it any more."""
        if self.begun is not None:
            if self.held.is_open and not self.future.done():
                self.held.begun = self.begun
            else:
                give_up(self.begun.work.future)
        super().wake()

    @property
    def _has_verdict(self) -> bool:
        """Asked when its pass is over."""
        return self.error is None and self.unjudged is None

    def _call_after(self) -> WaitingCall[Verdict] | None:
        return self.held.call_after(self.call.step, self)

    def _last_resort(self) -> WaitingCall[Verdict] | None:
        return self.held.last_resort(self.call.step, self)

    @property
    def options(self) -> SequenceOptions:
        return self.held.options

    @property
    def first_position(self) -> int:
        """Position of the token that the first row decides."""
        return len(self.sequence.tokens) - len(self.asked.proposed)

    @property
    def tree(self) -> TokenTree:
        """The proposed tokens, which are a tree."""
        assert self.asked.tree is not None
        return self.asked.tree

    @property
    def judging_rows(self) -> list[int]:
        """For each proposed token the row, among the work's own, that judges it."""
        return list(range(len(self.asked.proposed))) if self.parents is None else [1 + p for p in self.parents]


def judged_round(judged: VerifyCall, path: list[int], tokens: list[int]) -> JudgedRound:
    """What a pass made of a proposal, of which the tokens at `path` were accepted."""
    tree = judged.tree
    if tree is None:
        return JudgedRound(len(judged.proposed), tokens)
    last = path[-1] if path else ROOT
    return JudgedRound(max(tree.depths), tokens, len(tree), ended_at_leaf=not tree.children(last))
