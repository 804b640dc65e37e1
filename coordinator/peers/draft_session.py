"""One sequence at a draft. The draft may fail at any time without harm to the output."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.deadline import NEVER, Deadline
from coordinator.peers.ahead_blocks import AheadBlocks, BlockKey, Preparation, PreparedBlock
from coordinator.peers.answers import CallTimes, Proposed
from coordinator.peers.draft_call import DraftCall
from coordinator.peers.draft_opening import DraftOpening
from coordinator.peers.draft_trial import DraftTrial
from coordinator.peers.drafts import DraftLink, Drafts
from coordinator.peers.openings import Openings
from coordinator.peers.proposal_source import ProposalSource
from coordinator.peers.recovery import Recovery
from specpair.errors import SpecpairError
from specpair.model_info import ModelInfo
from specpair.options import SequenceOptions

Result = TypeVar("Result")


class DraftSession(ProposalSource):
    """Gets proposals, or None for a round without one. If its draft fails, it moves to another, if there is one."""

    def __init__(
        self,
        drafts: Drafts,
        sequence_id: str,
        prompt_length: int,
        options: SequenceOptions,
        timeout: float,
        cooldown: float,
        deadline: Deadline = NEVER,
    ):
        """A proposal has a timeout of `timeout` seconds, less if the client's `deadline` is sooner. After a failure of
        its own the sequence has no proposals for `cooldown` seconds."""
        self._drafts = drafts
        self._deadline = deadline
        self._has_place = options.draft_index > 0
        trial = self._trial = DraftTrial(sequence_id, timeout, cooldown, deadline)
        openings = Openings[DraftLink](sequence_id, prompt_length, options)
        self._opening = DraftOpening(openings, lambda: trial.within)
        self.blocks = AheadBlocks()
        """What the draft has prepared."""
        self._calls: set[asyncio.Task[Any]] = set()
        """Calls whose answers no round waits for."""
        self._preparing: asyncio.Task[None] | None = None
        """The one that has the first proposal prepared. It may wait for the opening."""

    def start(self, history: Sequence[int], original: ProposalSource | None = None) -> bool:
        """Opens the sequence in the background, as a fork of the original's prompt if that one was opened.

        No token waits for the draft. Returns whether the opening could be started.
        """
        if self._opening.is_under_way:
            return True
        if self._trial.is_quiet or self.room(len(history)) <= 0:
            return False
        copied = original._opening if isinstance(original, DraftSession) and original._opening.is_begun else None
        link = self._choose(history) if copied is None else copied.link
        if link is None or not link.is_usable:
            return False
        self._enter(link)
        self._opening.start(link, list(history), copied)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for an opening. A failed opening shows in the proposal."""
        return self._opening.is_ready

    @property
    def is_known(self) -> bool:
        """Whether the draft's limits are known: not before its first check, nor after it was restarted."""
        return self._drafts.info is not None

    def room(self, length: int) -> int:
        """The largest number of tokens that the draft can propose after `length` tokens."""
        link = self._opening.link
        if link is not None and link.info is not None:
            return link.room(length)
        return max((link.room(length) for link in self._drafts.links.values()), default=0)

    def has_prepared(self, step: int, history: Sequence[int]) -> bool:
        """Whether the proposal for this round is there already, with its distributions."""
        key = self.blocks.key(step, history)
        return key is not None and any(block.key == key and not block.is_bare for block in self.blocks.of_step(step))

    async def propose(
        self,
        step: int,
        history: Sequence[int],
        count: int,
        min_confidence: float = 0.0,
        preparation: Preparation | None = None,
        tree_tokens: int = 0,
    ) -> Proposed | None:
        """Up to `count` proposed tokens after the history, or a tree of `tree_tokens` with paths of up to `count`; None
        if no draft can propose now.

        With a `preparation` the draft then works ahead. If it did so in the step before, and prepared the right
        proposal, that is returned at once, or when it comes. The draft is called all the same, to know the new tokens.
        """
        key = self.blocks.key(step, history)
        block = None if key is None else self.blocks.take(key)
        if key is None and preparation is None:
            self.blocks.clear()  # the draft no longer works ahead
        if key is None and self._preparing is not None:
            self._preparing.cancel()  # it was not sent, and says less than the call that is made now
        call = self._call(step, history, count, min_confidence, preparation, tree_tokens)
        if block is not None and not block.is_bare:
            if call is not None:
                call.link.hear(time.perf_counter() - block.arrived_at)
                if self._may_ask(call.link) and (self._calls or not call.tell()):
                    self._spawn(replace(call, history=list(history), has_proposal=True))
            return _prepared(block, AheadOutcome.HIT, 0.0)
        if call is None:
            return None
        if self._may_ask(call.link):
            if block is not None:
                return await self._whole(call, block)
            return await call.answer() if key is None else await self._first_of(call, key)
        self._try_again(call)
        return None

    def pass_over(self, step: int, history: Sequence[int], preparation: Preparation) -> bool:
        """Tells the draft of the new tokens, and has it work ahead; the target goes on without a proposal."""
        call = self._call(step, history, 1, 0.0, preparation, 0)
        if call is None or not self._may_ask(call.link):
            return False
        call = replace(call, is_plain=True, has_proposal=True)
        if self._calls or not call.tell():
            self._spawn(replace(call, history=list(history)))
        return True

    def prepare(self, step: int, history: Sequence[int], preparation: Preparation) -> bool:
        call = self._call(step, history, 1, 0.0, preparation, 0)
        if call is None or not self._may_ask(call.link):
            return False
        preparing = replace(call, history=list(history), is_plain=True, has_proposal=True)
        self._preparing = self._keep(preparing.prepare())
        return True

    def _try_again(self, call: DraftCall) -> None:
        """Asks a draft that failed for one token in the background, unless that is under way."""
        if not self._trial.is_under_way and call.link.breaker.admit():
            history = list(call.history)
            trial = replace(call, history=history, count=1, min_confidence=0.0, preparation=None, tree_tokens=0)
            self._trial.start(trial.answer())

    def _call(
        self,
        step: int,
        history: Sequence[int],
        count: int,
        min_confidence: float,
        preparation: Preparation | None,
        tree_tokens: int,
    ) -> DraftCall | None:
        """The call to the draft that is to be asked; None if none is."""
        link = self._choose(history)
        if link is None or self._trial.is_quiet or self._deadline.is_over:
            return None
        self._enter(link)
        count = min(count, link.room(len(history)))  # another draft may have a shorter context
        if count <= 0:
            return None
        return DraftCall(
            opening=self._opening,
            blocks=self.blocks,
            trial=self._trial,
            recoveries=self._drafts.recoveries,
            link=link,
            step=step,
            history=history,
            count=count,
            min_confidence=min_confidence,
            tree_tokens=min(tree_tokens, link.room(len(history))),
            preparation=None if preparation is None or link.info is None else _limited(preparation, link.info),
        )

    def _may_ask(self, link: DraftLink) -> bool:
        """Whether a round may wait for this draft."""
        return link.breaker.is_closed and not self._trial.is_needed

    async def _whole(self, call: DraftCall, block: PreparedBlock) -> Proposed | None:
        """A prepared proposal with its distributions, which the draft is asked for. How much of that the round waits is
        known once the target says when it had begun with the tokens."""
        if (answer := await call.answer()) is None:
            return None
        if list(answer.token_ids) != list(block.proposal.token_ids):
            return replace(answer, ahead=AheadOutcome.MISS)
        prepared, whole = _prepared(block, AheadOutcome.HIT, 0.0), answer.times.elapsed
        own = {"proposal": answer.proposal, "guesses": answer.guesses, "is_usual": answer.is_usual}
        return replace(prepared, asked_for=whole, waited=whole, **own)

    async def _first_of(self, call: DraftCall, key: BlockKey) -> Proposed | None:
        """The answer, or the prepared proposal if that comes first: they have the same tokens."""
        start = time.perf_counter()
        asking = self._spawn(replace(call, history=list(call.history)))
        waiting = asyncio.ensure_future(self.blocks.wait(key))
        try:
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        finally:
            waiting.cancel()
        if waiting.done() and not waiting.cancelled() and not waiting.result().is_bare:
            return _prepared(waiting.result(), AheadOutcome.LATE, time.perf_counter() - start)
        if (answer := await asking) is None:
            return None
        return replace(answer, ahead=AheadOutcome.LATE if answer.was_prepared else AheadOutcome.MISS)

    def _spawn(self, call: DraftCall) -> "asyncio.Task[Proposed | None]":
        """Makes a call that no round waits for, or not to its end. A failure counts against the draft as ever."""
        return self._keep(call.answer())

    def _keep(self, call: "Coroutine[Any, Any, Result]") -> "asyncio.Task[Result]":
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def leave_alone(self, error: SpecpairError) -> None:
        """Stops asking after a failure of this sequence alone: for the cool-down, or for good if it is refused.

        What it prepared is dropped.
        """
        self._trial.leave_alone(error)
        self.blocks.clear()

    async def close(self) -> None:
        """Gives the blocks back."""
        self._trial.cancel()
        self.blocks.clear()
        for call in self._calls:
            call.cancel()
        await self._opening.close()

    def _choose(self, history: Sequence[int]) -> DraftLink | None:
        """The draft to ask: the one that holds the sequence if it is usable, else another."""
        link = self._opening.link
        link = link if link is not None and link.is_usable else self._drafts.choose(history)
        if self._has_place and link is not None and link.info is not None and not link.info.takes_draft_index:
            return None  # it would draw by the numbers of another
        return link

    def _enter(self, link: DraftLink) -> None:
        """Moves the sequence to this draft."""
        if link is self._opening.link:
            return
        if self._opening.link is not None:
            self._drafts.recoveries[Recovery.MOVED] += 1
            self._trial.cancel()
        self._opening.enter(link)


def _limited(preparation: Preparation, info: ModelInfo) -> Preparation:
    """The same within the limits of this draft, as `room` says them for a call."""
    return replace(
        preparation,
        count=min(preparation.count, info.max_num_speculative_tokens),
        max_length=min(preparation.max_length, info.max_model_len - 1),
    )


def _prepared(block: PreparedBlock, ahead: AheadOutcome, waited: float) -> Proposed:
    """A prepared proposal in place of an answer. Its computation ended when it came."""
    times = CallTimes(
        started_at=block.arrived_at - block.compute, elapsed=block.compute, queue=0.0, compute=block.compute
    )
    return Proposed(proposal=block.proposal, times=times, ahead=ahead, waited=waited)
