"""One sequence at a target. It survives restarts, lost connections and moves to another target."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from coordinator.deadline import NEVER, Deadline
from coordinator.peers.ahead_blocks import BlockKey, is_bare
from coordinator.peers.answers import Verdict
from coordinator.peers.backoff import Backoff
from coordinator.peers.call_out import CallOut
from coordinator.peers.early_calls import EarlyCalls
from coordinator.peers.failures import AWAY, LOST, is_out_of_time
from coordinator.peers.openings import Openings
from coordinator.peers.own_order import NO_ORDER, OwnOrder
from coordinator.peers.recovery import Recovery
from coordinator.peers.targets import TargetLink, Targets
from specpair.errors import (
    CapacityExhaustedError,
    ForwardFailedError,
    PeerUnavailableError,
    SpecpairError,
    VocabularyMismatchError,
)
from specpair.options import SequenceOptions
from specpair.v1.proposal_pb2 import Proposal

CALL_SECONDS = 20.0
"""Longest time of one call; a longer round takes several calls."""
LEAST_TOKENS_PER_SECOND = 10.0
"""A connected target that reads fewer tokens per second counts as hanging."""
MOST_REPEATS = 2
"""Repeats of a round whose forward pass failed: through another sequence, a lack of memory, or its own tokens."""

logger = logging.getLogger(__name__)

OnSent = Callable[[], None] | None
Answer = TypeVar("Answer")
Ask = Callable[[TargetLink, float], Coroutine[Any, Any, Answer]]
"""A call to a target where the sequence is open, with its timeout in seconds."""


class TargetSession:
    """Gives each round its verdict, however often calls are repeated or the sequence is reopened.

    A repeated call has the same step, so nothing is drawn twice: the target answers from memory. A restarted or other
    target judges again with the same noise. If rounding makes its verdict differ, no one has seen the lost verdict.
    """

    def __init__(
        self,
        targets: Targets,
        sequence_id: str,
        prompt_length: int,
        options: SequenceOptions,
        timeout: float,
        *,
        length: int = 0,
        deadline: Deadline = NEVER,
        include_probabilities: bool = False,
    ):
        """`timeout`, in seconds, is how long to wait for an unavailable target if the client has no `deadline`;
        `length` is the largest length of the sequence."""
        self._targets = targets
        self._prompt_length = prompt_length
        self._encoder_length = len(options.encoder_ids)
        self._timeout = timeout
        self._length = length
        self._deadline = deadline
        self._include_probabilities = include_probabilities
        self._link: TargetLink | None = None
        """The target where the sequence is or will be opened."""
        self._openings = Openings[TargetLink](sequence_id, prompt_length, options)
        self._name = ""
        """Its name there; empty before it is opened."""
        self._left: list[TargetLink] = []
        """Targets that failed in this round."""
        self._latest = Deadline.after(0.0)
        """Until then, a connected target that does not answer does not count as hanging."""
        self._readers: list[TargetLink] = []
        """Targets that were given time to read the text in this round: once each, so that the round ends."""
        self._is_open = False
        self._held_length = 0
        """Tokens that the target holds of an open sequence: all but those that were forced after its last verdict."""
        self._lock = asyncio.Lock()
        """Held during a call, so that the sequence is not forked in the middle of one."""
        self._fork_count = 0
        """Forks of the sequence that wait for the lock."""
        self._call_out: CallOut | None = None
        """None also while a call is repeated: nothing follows it then."""
        self._early = EarlyCalls(targets.early_counts)
        self._promised: tuple[str, int] | None = None
        """Name of the sequence and step of the next call, if the target goes on to it by itself."""

    async def open(self, history: Sequence[int]) -> None:
        """Registers the sequence. Raises CapacityExhaustedError if all targets are full: nothing is generated yet."""
        backoff, full = self._backoff(), list[TargetLink]()
        while not self._is_open:
            self._check_deadline()
            try:
                await self._settle(history, backoff, full)
            except CapacityExhaustedError:
                assert self._link is not None
                full.append(self._link)
                if self._targets.choose(history, full, self._length) in full:
                    raise
                self._leave()
            except VocabularyMismatchError as error:
                backoff = await self._go_elsewhere(error, backoff)
            except AWAY as error:
                backoff = await self._recover(error, backoff)

    async def fork(self, original: "TargetSession") -> None:
        """Registers the sequence as a fork of another's prompt. If that fails, `verify` opens it by itself."""
        original._fork_count += 1
        try:
            async with original._lock:
                await self._fork(original)
        finally:
            original._fork_count -= 1

    async def _fork(self, original: "TargetSession") -> None:
        if (link := original._link) is None:
            return
        self._enter(link)
        self._let_read(link, self._prompt_length)
        self._name = self._openings.begin(link)
        within = self._deadline.at_most(self._timeout)
        try:
            await self._openings.fork(link, self._name, original._name, self._prompt_length, lambda: within)
            self._is_open, self._held_length = True, self._prompt_length
        except SpecpairError as error:
            logger.info("not forked: %s", error.message, extra={"sequence_id": self._openings.sequence_id})

    async def verify(
        self,
        step: int,
        history: Sequence[int],
        proposal: Proposal | None,
        on_sent: OnSent = None,
        order: OwnOrder = NO_ORDER,
        max_forced: int = 0,
        following_order: OwnOrder | None = None,
        *,
        may_go_on_plain: bool = False,
    ) -> Verdict:
        """The verdict of one round. Raises PeerUnavailableError if no target answers in time.

        `on_sent` is called soon after the call was sent: from then on `verify_early` may send what follows it, unless
        forced tokens are asked for, up to `max_forced`. The target is asked for `order`, as far as it can; `step` is
        the first one of a run. A `following_order` promises the next call, with this order and with what the target
        proposes now, whole, or nothing: it goes on to it at once. If it `may_go_on_plain` the verdict says if it did.
        """
        begun_name: str | None = None  # of the sequence where the target may have begun before the call is made

        def ask(link: TargetLink, within: float) -> Coroutine[Any, Any, Verdict]:
            held, own_order = self._held_length, link.order_of(order)
            body = (self._name, step, held, proposal, within, self._include_probabilities, own_order, history[held:])
            was_begun = begun_name == self._name
            forced = 0 if was_begun else max_forced  # what the target may have begun with asked for none
            following = None if following_order is None else link.order_of(following_order)
            self._promised = None if following is None else (self._name, step + 1)
            after = {"following_order": following, "may_go_on_plain": may_go_on_plain and link.goes_on_plain}
            return link.peer.verify(*body, forced, was_begun=was_begun, **after)

        async with self._lock:
            self._begin_round()
            begun_name = self._begun_name(step, history)
            verdict = await self._asked(step, history, ask, on_sent)
            if self._promised is not None or verdict.has_gone_on_plain:
                self._promised = (self._name, step + verdict.pass_count)
            self._held_length = len(history) + verdict.committed_count
            return verdict

    def _begun_name(self, step: int, history: Sequence[int]) -> str | None:
        """The name of the sequence at a target that may have begun with the call of this step; None without one."""
        is_promised = self._promised == (self._name, step)
        return self._name if self._early.take(step, history, may_be_met=not is_promised) or is_promised else None

    def verify_early(self, key: BlockKey, proposal: Proposal) -> bool:
        """Sends the verification of the next step before the verdict of this one is known; it is for the outcome `key`.

        If that comes, the target begins at once, and `verify` finds it at work. A call that is lost, or is not needed,
        changes nothing. Nothing is sent while this step's call is not out, or is being repeated, or the sequence is to
        be forked, nor twice. Returns whether it was sent.
        """
        out = self._call_out
        if out is None or self._fork_count or key in self._early:
            return False
        is_taken = out.link.takes_withheld_distributions or not is_bare(proposal)
        if not is_taken or (out.step + 1, out.length) != (key.step, key.base_length):
            return False
        try:
            out.link.peer.verify_early(out.name, key, proposal, self._include_probabilities)
        except SpecpairError as error:
            logger.debug("a verification on condition was not sent: %s", error.message)
            return False
        self._early.add(key)
        return True

    async def _answer(
        self, link: TargetLink, step: int, length: int, call: Coroutine[Any, Any, Answer], on_sent: OnSent
    ) -> Answer:
        """The answer of a call; until it comes, `verify_early` may send what follows it, unless `on_sent` is None."""
        if on_sent is not None:
            self._call_out = CallOut(link, self._name, step, length)
            asyncio.get_running_loop().call_soon(on_sent)
        try:
            return await call
        finally:
            self._call_out = None

    def _begin_round(self) -> None:
        self._left.clear()
        self._readers.clear()
        self._latest = max(self._latest, Deadline.after(self._timeout))

    async def _asked(self, step: int, history: Sequence[int], ask: Ask[Answer], on_sent: OnSent = None) -> Answer:
        backoff, repeat_count = self._backoff(), 0
        while True:
            self._check_deadline()
            try:
                link = await self._settle(history, backoff)
                call = ask(link, self._within(backoff))
                follow, on_sent = on_sent, None  # nothing follows a repeated call
                answer = await self._answer(link, step, len(history), call, follow)
            except LOST as error:
                self._is_open = False
                await self._pause(error, backoff, Recovery.REOPENED)
            except AWAY as error:
                backoff = await self._recover(error, backoff)
            except VocabularyMismatchError as error:
                backoff = await self._go_elsewhere(error, backoff)
            except CapacityExhaustedError as error:
                await self._pause(error, backoff)
                self._leave()  # another target may have room
            except ForwardFailedError as error:
                repeat_count += 1
                if repeat_count > MOST_REPEATS:
                    raise
                await self._pause(error, backoff)
            else:
                link.welcome()
                return answer

    async def close(self) -> None:
        """Closes the sequence, which frees its cache blocks."""
        async with self._lock:
            if self._link is not None:
                self._forget_link()
            await self._openings.end()

    async def _settle(self, history: Sequence[int], backoff: Backoff, avoided: Sequence[TargetLink] = ()) -> TargetLink:
        """The target where the sequence is open; chooses one and opens it there if necessary."""
        while self._link is None:
            if (chosen := self._targets.choose(history, avoided, self._length)) is None:
                await backoff.pause(PeerUnavailableError("no target is available"))
            else:
                self._enter(chosen)
        if not self._is_open:
            await self._open(self._link, history, backoff)
        if self._link.is_too_short(self._length):  # another process is there by now
            self._leave()
            return await self._settle(history, backoff, avoided)
        return self._link

    async def _open(self, link: TargetLink, history: Sequence[int], backoff: Backoff) -> None:
        await self._openings.end_at(link, self._within(backoff))
        self._let_read(link, len(history))
        self._name = self._openings.begin(link)
        await self._openings.open(link, self._name, history, lambda: self._within(backoff))
        self._is_open, self._held_length = True, len(history)

    async def _recover(self, error: SpecpairError, backoff: Backoff) -> Backoff:
        """After a target did not answer: prepares to repeat the call, or moves to another target.

        Returns the back-off for the next tries. A connected target that is busy with a long text gets the same call
        again and continues it. A timeout at the client's deadline does not count against the target.
        """
        link = self._link
        if self._deadline.is_over:
            backoff.check(error)
        if link is None:
            await self._pause(error, backoff)
            return backoff
        if is_out_of_time(error) and link.is_there and not self._latest.is_over:
            backoff = self._backoff()
            await self._pause(error, backoff)  # the call may have failed long before its timeout
            return backoff
        link.fail(error)
        if not self._may_move(link):
            await self._pause(error, backoff)
            return backoff
        return await self._go_elsewhere(error, backoff)

    async def _go_elsewhere(self, error: SpecpairError, backoff: Backoff) -> Backoff:
        """Leaves the target for another one, with a new back-off. Raises the error if there is no other."""
        link = self._link
        if link is None or not self._may_move(link):
            raise error
        self._targets.recoveries[Recovery.MOVED] += 1
        logger.info("going to another target", extra={"sequence_id": self._openings.sequence_id})
        self._leave()
        if link in self._left:  # it failed before in this round: pause, within the same back-off
            await backoff.pause(error)
            return backoff
        self._left.append(link)
        return self._backoff()

    def _check_deadline(self) -> None:
        """Raises PeerUnavailableError if the client's deadline has passed."""
        if self._deadline.is_over:
            raise PeerUnavailableError("the deadline came before the target's answer", peer="target")

    def _may_move(self, link: TargetLink) -> bool:
        return link.is_released or self._targets.has_better(link, self._length)

    async def _pause(self, error: SpecpairError, backoff: Backoff, recovery: Recovery = Recovery.REPEATED) -> None:
        self._targets.recoveries[recovery] += 1
        logger.debug("asking the target again: %s", error.message, extra={"sequence_id": self._openings.sequence_id})
        await backoff.pause(error)

    def _let_read(self, link: TargetLink, length: int) -> None:
        """Gives the target time to read `length` tokens, and what its encoder reads, once per target and round."""
        if link not in self._readers:
            self._readers.append(link)
            self._latest = Deadline.after(self._timeout + (length + self._encoder_length) / LEAST_TOKENS_PER_SECOND)

    def _enter(self, link: TargetLink) -> None:
        self._link = link
        link.sequence_count += 1
        link.breaker.admit()

    def _leave(self) -> None:
        """Leaves the target; the sequence there is closed in the background, so that its place becomes free."""
        assert self._link is not None
        self._openings.owe_at(self._link)
        self._forget_link()

    def _forget_link(self) -> None:
        assert self._link is not None
        self._link.sequence_count -= 1
        self._link, self._is_open = None, False

    def _backoff(self) -> Backoff:
        return Backoff("target", self._deadline.or_after(self._timeout), self._targets.news)

    def _within(self, backoff: Backoff) -> float:
        return backoff.deadline.at_most(min(self._timeout, CALL_SECONDS))
