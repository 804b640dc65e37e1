"""Several drafts at once: who is in a round, and what the others cost."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.peers.ahead_blocks import AheadBlocks
from coordinator.peers.answers import CallTimes, Proposed
from coordinator.peers.merged_session import MergedSession
from coordinator.peers.proposal_source import ProposalSource
from specpair.errors import InvalidDistributionError, SpecpairError
from specpair.v1.proposal_pb2 import Proposal

TIMES = CallTimes(started_at=0.0, elapsed=0.002, queue=0.0, compute=0.001)
LONG, SHORT = 60.0, 0.001
"""Waits: one that no answer takes, and one that no answer is in time for that waits for the test."""


class Draft(ProposalSource):
    """Answers at once, or when it is released."""

    def __init__(self, *tokens: int) -> None:
        self.blocks = AheadBlocks()
        self.tokens: tuple[int, ...] | None = tokens
        """None: it fails."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.ready = self.known = True
        self.longest = 10
        self.started: list[int] = []
        self.asked: list[tuple[int, int, list[Any]]] = []
        self.complaints: list[SpecpairError] = []
        self.is_closed = False

    @property
    def is_ready(self) -> bool:
        return self.ready

    @property
    def is_known(self) -> bool:
        return self.known

    def start(self, history: Sequence[int], original: ProposalSource | None = None) -> bool:
        self.started.append(len(history))
        return self.known

    def room(self, length: int) -> int:
        return self.longest

    def has_prepared(self, step: int, history: Sequence[int]) -> bool:
        return False

    async def propose(self, step: int, history: Sequence[int], count: int, *args: Any, **more: Any) -> Proposed | None:
        self.asked.append((step, count, [*args, *more.values()]))
        await self.may_answer.wait()
        if self.tokens is None:
            return None
        return Proposed(proposal=Proposal(token_ids=self.tokens[:count]), times=TIMES)

    def leave_alone(self, error: SpecpairError) -> None:
        self.complaints.append(error)

    async def close(self) -> None:
        self.is_closed = True


def session(wait: float = LONG, **drafts: Draft) -> MergedSession:
    return MergedSession(drafts, wait)


async def proposed(merged: MergedSession, step: int = 1, count: int = 3) -> Proposed:
    answer = await merged.propose(step, [1, 2], count, tree_tokens=12)
    assert answer is not None
    return answer


async def test_chains_become_one_tree() -> None:
    answer = await proposed(session(a=Draft(5, 6, 7), b=Draft(5, 8), c=Draft()))
    assert list(answer.token_ids) == [5, 6, 7, 8] and list(answer.parents) == [-1, 0, 1, 0]
    assert [(share.name, share.nodes) for share in answer.shares] == [("a", (0, 1, 2)), ("b", (0, 3)), ("c", ())]
    assert not any(share.is_late for share in answer.shares)


async def test_a_late_draft_is_left_out_until_it_has_answered() -> None:
    slow = Draft(9)
    slow.may_answer.clear()
    merged = session(SHORT, a=Draft(5, 6), b=slow)
    for step in (1, 2, 3):
        answer = await proposed(merged, step)
        assert list(answer.token_ids) == [5, 6]
        assert [(share.name, share.is_late) for share in answer.shares] == [("a", False), ("b", True)]
    assert len(slow.asked) == 1, "it is not asked while it answers an earlier round"
    slow.may_answer.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    merged._wait = LONG
    assert list((await proposed(merged, 4)).token_ids) == [5, 6, 9]
    assert [step for step, _, _ in slow.asked] == [1, 4], "a proposal that came late is never used"


async def test_the_first_draft_of_the_list_may_be_the_late_one() -> None:
    slow = Draft(9)
    slow.may_answer.clear()
    answer = await proposed(session(SHORT, a=slow, b=Draft(5)))
    assert list(answer.token_ids) == [5]


async def test_who_is_in_a_round_does_not_depend_on_tokens() -> None:
    """Every draft is asked for a chain of the same length, without an end where it is unsure: so its time says nothing
    about its tokens."""
    one, other = Draft(5), Draft(6)
    await session(a=one, b=other).propose(7, [1], 4, min_confidence=0.5, preparation=None, tree_tokens=3)
    assert one.asked == other.asked == [(7, 4, [])]


async def test_a_dead_draft_costs_nothing_but_its_proposals() -> None:
    dead = Draft()
    dead.tokens = None
    merged = session(a=dead, b=Draft(5, 6))
    answer = await proposed(merged)
    assert list(answer.token_ids) == [5, 6]
    dead.tokens = (7,)
    assert list((await proposed(merged, 2)).token_ids) == [7, 5, 6]


async def test_a_failure_is_no_answer() -> None:
    """A draft that fails at once does not shorten the time of the others."""
    dead, slow = Draft(), Draft(4)
    dead.tokens = None
    slow.may_answer.clear()
    asking = asyncio.create_task(proposed(session(SHORT, a=dead, b=slow)))
    for _ in range(10):
        await asyncio.sleep(SHORT)
    assert not asking.done()
    slow.may_answer.set()
    assert list((await asking).token_ids) == [4]


async def test_without_any_answer_the_round_has_no_proposal() -> None:
    dead = Draft()
    dead.tokens = None
    assert await session(a=dead).propose(1, [1], 3, tree_tokens=6) is None


async def test_a_proposal_that_cannot_be_merged_is_left_out() -> None:
    odd = Draft(1, 2)
    merged = session(a=odd, b=Draft(5))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(odd, "tokens", (1, 2))
        patched.setattr(
            "coordinator.peers.merged_session.check_mergeable",
            lambda proposal, count: (
                (_ for _ in ()).throw(InvalidDistributionError("proposal", "is odd"))
                if list(proposal.token_ids) == [1, 2]
                else None
            ),
        )
        answer = await proposed(merged)
    assert list(answer.token_ids) == [5] and len(odd.complaints) == 1


async def test_a_shorter_draft_is_asked_for_fewer() -> None:
    short, full = Draft(5, 6, 7), Draft(8)
    short.longest, full.longest = 1, 0
    merged = session(a=short, b=full)
    assert list((await proposed(merged)).token_ids) == [5] and full.asked == []
    assert merged.room(2) == 1


async def test_a_target_that_judges_no_trees_gets_the_first_chain() -> None:
    """As after a failover in the middle of a request. It is the first that answered, whatever it proposed."""
    answer = await session(a=Draft(), b=Draft(5)).propose(1, [1], 3, tree_tokens=0)
    assert answer is not None and not answer.token_ids and not answer.parents
    answer = await session(a=Draft(5, 6), b=Draft(7)).propose(1, [1], 3, tree_tokens=0)
    assert answer is not None and list(answer.token_ids) == [5, 6] and not answer.parents


async def test_closing_ends_calls_and_closes_all() -> None:
    slow = Draft(9)
    slow.may_answer.clear()
    quick = Draft(5)
    merged = session(SHORT, a=quick, b=slow)
    await proposed(merged)
    async with asyncio.timeout(60):
        await merged.close()
    assert quick.is_closed and slow.is_closed and merged._calls["b"].cancelled()
