"""Verifications that a session sends before the verdict of the step before: when they are sent, and when they count."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coordinator.peers import TargetSession, backoff
from coordinator.peers.ahead_blocks import BlockKey
from coordinator.peers.early_calls import EarlyResult
from specpair.errors import StaleStepError
from specpair.options import SamplingOptions, SequenceOptions
from specpair.rpc.retry import RetryPolicy
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.fake_language import next_token
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, Bench, bench, until


class Sequence:
    """A sequence at a fake target, and what is said after its prompt."""

    def __init__(self, b: Bench, name: str = "s") -> None:
        self.session = TargetSession(b.pair.target, name, len(PROMPT), SequenceOptions(sampling=SamplingOptions()), 1.0)
        self.history = list(PROMPT)
        self.first = next_token(PROMPT)
        self.proposal = Proposal(token_ids=[next_token([*PROMPT, self.first])])
        self.key = BlockKey(2, len(PROMPT), 0, self.first)
        """Of step 2, if step 1 gives the first token."""

    def follow(self) -> None:
        self.session.verify_early(self.key, self.proposal)


@asynccontextmanager
async def open_sequence() -> AsyncIterator[tuple[Bench, Sequence]]:
    async with bench() as b:
        sequence = Sequence(b)
        b.target.delay = 0.005
        await sequence.session.open(sequence.history)
        yield b, sequence
        await sequence.session.close()


async def test_the_verdict_of_an_early_call_is_that_of_its_round() -> None:
    async with open_sequence() as (b, s):
        first = await s.session.verify(1, s.history, None, s.follow)
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert (first.next_token_id, second.accepted_count) == (s.first, 1)
        assert b.target.conditions == [s.key] and b.target.met_count == 1
        assert b.pair.target.early_counts[EarlyResult.MET] == 1
        assert b.target.steps == [1, 2], "no other call was made"


@pytest.mark.parametrize("is_other", [True, False])
async def test_a_round_with_another_proposal_or_after_another_text_makes_its_own_call(is_other: bool) -> None:
    async with open_sequence() as (b, s):
        await s.session.verify(1, s.history, None, s.follow)
        same = Proposal(token_ids=s.proposal.token_ids)
        if is_other:
            verdict = await s.session.verify(2, [*s.history, s.first], same)
            assert verdict.accepted_count == 1, "the target answers the same body from memory"
        else:
            assert s.session._early.take(2, len(s.history), s.proposal) is None
        assert b.pair.target.early_counts[EarlyResult.MET] == 0


async def test_nothing_is_sent_while_no_call_is_out() -> None:
    async with open_sequence() as (b, s):
        s.follow()
        await s.session.verify(1, s.history, None)
        s.follow()
        await asyncio.sleep(0.01)
        assert not b.target.conditions


@pytest.mark.parametrize("key", [BlockKey(3, 3, 0, 1), BlockKey(1, 3, 0, 1), BlockKey(2, 4, 0, 1)])
async def test_only_the_step_after_the_one_that_is_out_is_sent(key: BlockKey) -> None:
    async with open_sequence() as (b, s):
        s.key = key
        await s.session.verify(1, s.history, None, s.follow)
        assert not b.target.conditions


async def test_the_same_is_sent_once() -> None:
    async with open_sequence() as (b, s):

        def twice() -> None:
            s.follow()
            s.follow()

        await s.session.verify(1, s.history, None, twice)
        assert len(b.target.conditions) == 1


async def test_nothing_is_sent_while_a_fork_waits() -> None:
    """A target forks no sequence in the middle of a call."""
    async with open_sequence() as (b, s):
        other = Sequence(b, "other")
        await s.session.verify(0, s.history, None)
        waiting: list[asyncio.Task[None]] = []

        def fork_and_follow() -> None:
            waiting.append(asyncio.create_task(other.session.fork(s.session)))
            asyncio.get_running_loop().call_later(0.001, s.follow)

        s.key = BlockKey(2, len(PROMPT) + 1, 0, next_token([*PROMPT, s.first]))
        await s.session.verify(1, [*s.history, s.first], None, fork_and_follow)
        await waiting[0]
        assert b.target.forked == [len(PROMPT)] and not b.target.conditions
        await other.session.close()


@pytest.mark.parametrize("error", [AWAY, StaleStepError("past")])
async def test_early_calls_are_forgotten_once_the_call_before_fails(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again, perhaps elsewhere; what followed it is not."""
    monkeypatch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
    async with open_sequence() as (b, s):
        b.target.faults.after = {0: error}
        task = asyncio.create_task(s.session.verify(1, s.history, None, s.follow))
        await until(lambda: bool(b.target.conditions))
        first = await task
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert (first.next_token_id, second.accepted_count) == (s.first, 1)
        assert len(b.target.conditions) == 1 and b.pair.target.early_counts[EarlyResult.MET] == 0


async def test_an_early_call_that_fails_is_followed_by_the_ordinary_one() -> None:
    async with open_sequence() as (b, s):
        b.target.refuses_conditions = AWAY
        first = await s.session.verify(1, s.history, None, s.follow)
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert second.accepted_count == 1 and b.target.steps == [1, 2]
        assert b.pair.target.early_counts[EarlyResult.FAILED] == 1


async def test_an_early_call_that_is_forgotten_before_it_begins_leaves_nothing_behind() -> None:
    async with open_sequence() as (b, s):

        def follow_and_forget() -> None:
            s.follow()
            s.session._early.cancel()

        await s.session.verify(1, s.history, None, follow_and_forget)
        gc.collect()  # a coroutine that nobody awaits warns when it goes, which fails the test
        assert not b.target.conditions


async def test_what_follows_an_early_call_that_fails_is_forgotten() -> None:
    async with open_sequence() as (b, s):
        first = await s.session.verify(1, s.history, None, s.follow)
        await until(lambda: b.target.met_count == 1)
        history = [*s.history, first.next_token_id]
        key = BlockKey(3, len(history), 1, next_token([*history, *s.proposal.token_ids]))

        def follow_and_fail() -> None:
            assert s.session.verify_early(key, Proposal(token_ids=[1]))
            b.target.faults.after = {1: AWAY}

        second = await s.session.verify(2, history, s.proposal, follow_and_fail)
        assert second.accepted_count == 1 and b.pair.target.early_counts[EarlyResult.FAILED] == 1
        assert key not in s.session._early
