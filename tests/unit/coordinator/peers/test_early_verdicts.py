"""Verifications that a session sends before the verdict of the step before: when they are sent, and when they count."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coordinator.peers import TargetSession, Verdict, backoff
from coordinator.peers.ahead_blocks import BlockKey
from coordinator.peers.early_calls import EarlyResult
from specpair.errors import InvalidFieldError, StaleStepError
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


def noted_calls(b: Bench) -> list[tuple[int, bool]]:
    """Of every call from now on how many forced tokens it asks for, and whether it was sent early."""
    asked: list[tuple[int, bool]] = []
    verify = b.target.verify

    async def note(*args: Any, was_begun: bool = False, **fields: Any) -> Verdict:
        asked.append((args[8], was_begun))
        return await verify(*args, **fields)

    b.target.verify = note  # type: ignore[method-assign]
    return asked


async def test_the_call_of_a_round_finds_what_was_sent_early() -> None:
    async with open_sequence() as (b, s):
        first = await s.session.verify(1, s.history, None, s.follow)
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert (first.next_token_id, second.accepted_count) == (s.first, 1)
        assert b.target.conditions == [s.key] and b.target.met_count == 1
        assert b.target.steps == [1, 2], "each round made its call"
        assert b.pair.target.early_counts == {EarlyResult.MET: 1, EarlyResult.NOT_MET: 0}


async def test_forced_tokens_are_not_asked_for_where_the_target_may_hold_a_call_that_asked_for_none() -> None:
    async with open_sequence() as (b, s):
        asked = noted_calls(b)
        first = await s.session.verify(1, s.history, None, s.follow, max_forced=8)
        history = [*s.history, first.next_token_id]
        second = await s.session.verify(2, history, s.proposal, max_forced=8)
        history += [*s.proposal.token_ids, second.next_token_id]
        await s.session.verify(3, history, None, max_forced=8)
        assert asked == [(8, False), (0, True), (8, False)]


async def test_what_was_sent_early_to_a_process_that_is_gone_does_not_count() -> None:
    async with open_sequence() as (b, s):
        asked = noted_calls(b)
        first = await s.session.verify(1, s.history, None, s.follow)
        b.target.restart()
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal, max_forced=8)
        assert second.accepted_count == 1
        assert asked == [(0, False), (0, True), (8, False)], "the second is lost, the third after an opening"


async def test_what_was_sent_early_for_another_text_does_not_count() -> None:
    async with open_sequence() as (b, s):
        s.key = s.key._replace(next_token_id=s.first + 1)
        first = await s.session.verify(1, s.history, None, s.follow)
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert second.accepted_count == 1 and not b.target.met_count
        assert b.pair.target.early_counts == {EarlyResult.MET: 0, EarlyResult.NOT_MET: 1}


async def test_a_call_that_cannot_be_sent_early_is_as_if_there_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sequence() as (b, s):

        def refuse(*_: object) -> None:
            raise InvalidFieldError("request", "is too large")

        monkeypatch.setattr(b.target, "verify_early", refuse)
        first = await s.session.verify(1, s.history, None, s.follow)
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert second.accepted_count == 1 and not any(b.pair.target.early_counts.values())


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
async def test_nothing_follows_a_call_that_is_repeated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again, perhaps elsewhere."""
    monkeypatch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
    async with open_sequence() as (b, s):
        b.target.faults.after = {0: error}
        task = asyncio.create_task(s.session.verify(1, s.history, None, s.follow))
        await until(lambda: bool(b.target.conditions))
        first = await task
        s.follow()
        second = await s.session.verify(2, [*s.history, first.next_token_id], s.proposal)
        assert (first.next_token_id, second.accepted_count) == (s.first, 1)
        assert len(b.target.conditions) == 1


async def test_a_round_after_one_that_was_sent_early_is_followed_as_well() -> None:
    async with open_sequence() as (b, s):
        first = await s.session.verify(1, s.history, None, s.follow)
        history = [*s.history, first.next_token_id]
        text = [*history, *s.proposal.token_ids]
        s.key, proposal = BlockKey(3, len(history), 1, next_token(text)), s.proposal
        s.proposal = Proposal(token_ids=[1])
        second = await s.session.verify(2, history, proposal, s.follow)
        await s.session.verify(3, [*text, second.next_token_id], s.proposal)
        assert b.target.met_count == 2 and b.pair.target.early_counts[EarlyResult.MET] == 2
