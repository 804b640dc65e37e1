"""One output at several drafts at once: their chains are merged into one tree.

Who is in a round is decided by time and by earlier rounds alone, never by what was drawn: a draft that is late is left
out before anybody has seen its proposal, and it is asked for a chain of a given length, so that its time does not
depend on its tokens either (docs/exactness.md, rule 8).
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from coordinator.deadline import Deadline
from coordinator.peers.ahead_blocks import AheadBlocks, Preparation
from coordinator.peers.answers import CallTimes, DraftShare, Proposed
from coordinator.peers.merged_proposal import check_mergeable, merge_proposals
from coordinator.peers.proposal_source import ProposalSource
from specpair.errors import InvalidDistributionError, SpecpairError

Answer = asyncio.Task[Proposed | None]


class MergedSession(ProposalSource):
    """Asks all drafts at the same time. One that fails, or is late, costs nothing but its own proposals."""

    def __init__(self, sources: Mapping[str, ProposalSource], wait: float):
        """`sources` has a session for each draft by its name, in the order in which their draws are judged. A round
        waits for others `wait` seconds after the first answer."""
        self.blocks = AheadBlocks()
        self._sources = sources
        self._wait = wait
        self._calls: dict[str, Answer] = {}
        """Calls under way, also those whose answers come too late."""

    @property
    def is_ready(self) -> bool:
        return any(source.is_ready for source in self._sources.values())

    @property
    def is_known(self) -> bool:
        return any(source.is_known for source in self._sources.values())

    def start(self, history: Sequence[int], original: ProposalSource | None = None) -> bool:
        """Opens the sequence at all drafts, as forks of the original's prompt where that one was opened."""
        others = original._sources if isinstance(original, MergedSession) else {}
        return any([source.start(history, others.get(name)) for name, source in self._sources.items()])

    def room(self, length: int) -> int:
        return max(source.room(length) for source in self._sources.values())

    def has_prepared(self, step: int, history: Sequence[int]) -> bool:
        return False

    async def propose(
        self,
        step: int,
        history: Sequence[int],
        count: int,
        min_confidence: float = 0.0,
        preparation: Preparation | None = None,
        tree_tokens: int = 0,
    ) -> Proposed | None:
        """A tree of at most `tree_tokens`, made of a chain of up to `count` tokens of each draft.

        No draft ends its chain early or works ahead. One that still answers an earlier round is not asked; one that
        still opens the sequence is as late as any other.
        """
        start = time.perf_counter()
        asked: dict[str, Answer] = {}
        for name, source in self._sources.items():
            if name in self._calls and not self._calls[name].done():
                continue
            own = min(count, max(source.room(len(history)), 0))
            if own:
                asked[name] = asyncio.create_task(source.propose(step, list(history), own))
        self._calls |= asked
        await self._wait_for(asked.values())
        return self._merge(asked, count, tree_tokens, time.perf_counter() - start)

    async def _wait_for(self, calls: Collection[Answer]) -> None:
        """Waits for the first answer, and then for the others as long as a round may. Looks at no token: only a draft
        that failed does not count as an answer."""
        pending, has_answer = set(calls), False
        deadline = Deadline.after(self._wait)
        while pending:
            done, pending = await asyncio.wait(
                pending,
                timeout=max(deadline.remaining, 0.0) if has_answer else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                return
            if not has_answer and any(call.result() is not None for call in done):
                has_answer, deadline = True, Deadline.after(self._wait)

    def _merge(self, calls: Mapping[str, Answer], count: int, tree_tokens: int, elapsed: float) -> Proposed | None:
        """The proposals that are there, as one; None without any."""
        answers = {name: call.result() for name, call in calls.items() if call.done()}
        sound = {
            name: answer
            for name, answer in answers.items()
            if answer is not None and self._is_sound(name, answer, count)
        }
        if not sound:
            return None
        if not tree_tokens:  # the target has come to be one that judges chains alone
            sound, tree_tokens = dict([next(iter(sound.items()))]), count
        try:
            merged = merge_proposals([answer.proposal for answer in sound.values()], tree_tokens)
        except InvalidDistributionError as error:
            self.leave_alone(error)
            return None
        nodes = dict(zip(sound, merged.nodes, strict=True))
        shares = (
            DraftShare(
                name=name, nodes=nodes.get(name, ()), is_late=name in self._calls and not self._calls[name].done()
            )
            for name in self._sources
        )
        return Proposed(
            proposal=merged.proposal,
            times=_times([answer.times for answer in sound.values()], elapsed),
            is_usual=all(answer.is_usual for answer in sound.values()),
            shares=tuple(shares),
        )

    def _is_sound(self, name: str, answer: Proposed, count: int) -> bool:
        """Whether a proposal can be merged; a draft with one that cannot is left alone for a while."""
        try:
            check_mergeable(answer.proposal, count)
        except InvalidDistributionError as error:
            self._sources[name].leave_alone(error)
            return False
        return True

    def leave_alone(self, error: SpecpairError) -> None:
        """None of the drafts is asked for a while: which of them sent what the target refused is not known."""
        for source in self._sources.values():
            source.leave_alone(error)

    async def close(self) -> None:
        for call in self._calls.values():
            call.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        await asyncio.gather(*(source.close() for source in self._sources.values()))


def _times(each: Sequence[CallTimes], elapsed: float) -> CallTimes:
    """Times of calls that were made together, as of one."""
    return CallTimes(
        started_at=min(times.started_at for times in each),
        elapsed=elapsed,
        queue=min(max(times.queue for times in each), elapsed),
        compute=min(max(times.compute for times in each), elapsed),
        rollback=min(max(times.rollback for times in each), elapsed),
    )
