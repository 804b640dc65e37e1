"""Working ahead: proposals and verdicts that come before they are asked for change the times, never a token."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.generation import Generation
from coordinator.outputs.output_part import OutputPart
from coordinator.peers import backoff
from coordinator.peers.ahead_blocks import BlockFate
from coordinator.peers.early_calls import EarlyResult
from specpair.errors import (
    CapacityExhaustedError,
    InvalidDistributionError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.options import SamplingOptions, WorkAhead
from specpair.rpc.retry import RetryPolicy
from specpair.v1.draft_service_pb2 import AheadBlock
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, Bench, bench

ON: dict[str, Any] = {"work_ahead": WorkAhead.ON}


def hits(generation: Generation) -> int:
    return generation.acceptance.ahead_counts[AheadOutcome.HIT]


async def run_to_a_hit(b: Bench, max_tokens: int) -> tuple[Generation, AsyncGenerator[OutputPart, None]]:
    """An output whose last round used a prepared proposal, and its parts from there on."""
    b.target.delay = 0.004
    generation = b.generation(max_tokens, 4, **ON)
    parts = generation.parts()
    while not hits(generation):
        await anext(parts)
    return generation, parts


async def test_a_prepared_proposal_is_verified_without_waiting_for_the_draft() -> None:
    async with bench() as b:
        b.target.delay = 0.005
        generation = await b.run(40, 4, 0.0, **ON)
        counts = generation.acceptance.ahead_counts
        assert counts[AheadOutcome.HIT] > 5 and not counts[AheadOutcome.MISS]
        assert sum(b.draft.has_proposal) == counts[AheadOutcome.HIT] + 1, "all hits, and the call beside the prompt"


async def test_a_draft_that_only_sends_proposals_counts_as_alive() -> None:
    async with bench() as b:
        assert b.pair.draft is not None
        generation, parts = await run_to_a_hit(b, 60)
        (link,) = b.pair.draft.links.values()
        link.answered_at = 0.0
        while hits(generation) < 3:
            await anext(parts)
        assert 0.0 < time.monotonic() - link.answered_at < 5.0
        await parts.aclose()


async def test_the_output_has_the_same_rounds_with_and_without() -> None:
    taken = []
    for mode in WorkAhead:
        async with bench() as b:
            b.target.delay = 0.002
            generation = await b.run(40, 4, 0.0, work_ahead=mode)
            acceptance = generation.acceptance
            taken.append((acceptance.drafted_per_position, acceptance.accepted_per_position, acceptance.round_count))
    assert taken[0] == taken[1] == taken[2]


async def test_off_asks_for_nothing_ahead() -> None:
    async with bench() as b:
        generation = await b.run(40, 4, 0.0, work_ahead=WorkAhead.OFF)
        assert set(b.draft.preparations) == {None} and not any(generation.acceptance.ahead_counts.values())


async def test_the_verdict_of_a_round_that_was_sent_early_is_used() -> None:
    async with bench() as b:
        b.target.delay = 0.005
        generation = await b.run(40, 4, 0.0, **ON)
        met = b.pair.target.early_counts[EarlyResult.MET]
        assert met == b.target.met_count == hits(generation)
        assert b.pair.target.early_counts[EarlyResult.NOT_MET] > met


async def test_a_proposal_that_comes_after_the_verdict_is_used_if_it_comes_before_the_answer() -> None:
    async with bench() as b:
        b.draft.delay, b.draft.push_delay, b.target.delay = 0.02, 0.008, 0.0
        counts = (await b.run(20, 4, 0.0, **ON)).acceptance.ahead_counts
        assert counts[AheadOutcome.LATE] > 3 and not counts[AheadOutcome.HIT]


async def test_proposals_that_never_come_make_every_round_an_ordinary_one() -> None:
    async with bench() as b:
        b.draft.is_mute = True
        generation = await b.run(40, 4, 0.0, **ON)
        counts = generation.acceptance.ahead_counts
        assert counts[AheadOutcome.MISS] > 5 and counts[AheadOutcome.HIT] == counts[AheadOutcome.LATE] == 0
        assert not any(b.draft.has_proposal[1:]) and generation.acceptance.fallback_count == 0


async def test_a_verdict_that_nothing_was_prepared_for_is_followed_by_an_ordinary_call() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        b.draft.prepares = lambda step, accepted_count: step % 2 == 0
        generation = await b.run(60, 4, 0.0, **ON)
        counts = generation.acceptance.ahead_counts
        assert counts[AheadOutcome.HIT] > 3 and counts[AheadOutcome.MISS] > 3
        assert sum(b.draft.has_proposal) == counts[AheadOutcome.HIT] + 1


async def test_hits_and_misses_in_turns_have_the_rounds_of_a_run_without() -> None:
    taken = []
    for mode in (WorkAhead.OFF, WorkAhead.ON):
        async with bench() as b:
            b.target.delay = 0.003
            b.draft.prepares = lambda step, accepted_count: step % 3 > 0
            acceptance = (await b.run(60, 4, 0.0, work_ahead=mode)).acceptance
            taken.append((acceptance.drafted_per_position, acceptance.accepted_per_position))
    assert taken[0] == taken[1]


@pytest.mark.parametrize(
    "change",
    [
        {"step": 99},
        {"base_length": 1},
        {"accepted_count": 7},
        {"next_token_id": 96},
        {"sequence_id": "another"},
    ],
)
async def test_a_proposal_for_anything_else_is_dropped(change: dict[str, Any]) -> None:
    """Each part of what a block is for must be equal."""

    def changed(block: AheadBlock) -> AheadBlock:
        other = AheadBlock()
        other.CopyFrom(block)
        for name, value in change.items():
            setattr(other, name, value)
        return other

    async with bench() as b:
        b.target.delay = 0.003
        b.draft.changes_block = changed
        generation = await b.run(30, 4, 0.0, **ON)
        assert hits(generation) == 0
        assert sum(b.draft.inbox.counts.values()) > 5


async def test_proposals_that_come_twice_or_of_an_earlier_step_are_stale() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        earlier: list[AheadBlock] = []

        def send_again(block: AheadBlock) -> AheadBlock:
            for old in [*earlier[:4], block]:
                b.draft.inbox.receive(old)
            earlier.append(block)
            return block

        b.draft.changes_block = send_again
        generation = await b.run(40, 4, 0.0, **ON)
        assert hits(generation) > 3 and b.draft.inbox.counts[BlockFate.STALE] > 10


async def test_a_wrong_number_of_tokens_is_refused_as_in_an_answer() -> None:
    def longer(block: AheadBlock) -> AheadBlock:
        block.proposal.token_ids.extend([1] * 5)
        return block

    async with bench() as b:
        b.target.delay = 0.003
        b.draft.changes_block = longer
        generation = await b.run(40, 4, 0.002, **ON)
        assert generation.acceptance.fallback_count > 0
        assert not b.target.conditions, "nothing invalid is sent early"


async def test_a_draft_that_dies_between_its_proposals_and_the_next_call_costs_no_token() -> None:
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 60)
        b.draft.faults.before = dict.fromkeys(range(1000), AWAY)
        async for _ in parts:
            pass
        assert generation.output.token_ids == continuation(PROMPT, 60)
        assert generation.acceptance.round_count > generation.acceptance.draft_round_count
        await b.check_closed()


async def test_a_draft_that_hangs_after_its_proposals_is_waited_for_once() -> None:
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 40)
        b.draft.delay = 30.0
        async with asyncio.timeout(5.0):
            async for _ in parts:
                pass
        assert generation.output.token_ids == continuation(PROMPT, 40)
        await b.check_closed()


async def test_a_draft_that_was_restarted_is_opened_again_and_works_ahead_again() -> None:
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 150)
        b.draft.held.clear()
        before = hits(generation)
        async for _ in parts:
            await asyncio.sleep(0.001)
        assert len(b.draft.opened) == 2 and hits(generation) > before + 3
        assert generation.output.token_ids == continuation(PROMPT, 150)


async def test_early_verifications_that_are_lost_are_made_in_the_ordinary_way() -> None:
    async with bench() as b:
        b.target.delay, b.target.loses_conditions = 0.003, True
        generation = await b.run(40, 4, 0.0, **ON)
        assert hits(generation) > 5 and b.target.conditions and not b.target.met_count
        assert b.pair.target.links[b.target.address].breaker.is_closed


async def test_a_draft_that_hears_nothing_gets_the_tokens_with_the_next_call() -> None:
    """What it is told is not answered; it says then how many tokens it has, and need not be opened again."""
    async with bench() as b:
        generation, parts = await run_to_a_hit(b, 60)
        b.draft.is_deaf = True
        async for _ in parts:
            await asyncio.sleep(0.001)
        assert generation.output.token_ids == continuation(PROMPT, 60)
        assert len(b.draft.told_steps) > 3 and len(b.draft.opened) == 1
        assert generation.acceptance.ahead_counts[AheadOutcome.MISS] > 3 and generation.acceptance.fallback_count == 0
        await b.check_closed()


async def test_an_invalid_proposal_that_was_sent_early_is_dropped_in_its_round() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        b.target.loses_conditions = True
        b.target.faults.before = {4: InvalidDistributionError("proposal", "is odd")}
        generation = await b.run(40, 4, 0.002, **ON)
        assert generation.acceptance.fallback_count >= 1


async def test_a_target_that_is_restarted_in_between_costs_no_token() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        generation = b.generation(60, 4, **ON)
        count = 0
        async for _ in generation.parts():
            count += 1
            if count % 4 == 0:
                b.target.restart()
        assert generation.output.token_ids == continuation(PROMPT, 60)
        assert hits(generation) > 3
        await b.check_closed()


async def test_lost_answers_of_early_verifications_are_asked_for_again() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        b.target.faults.after = dict.fromkeys(range(3, 60, 3), AWAY)
        generation = await b.run(40, 4, 0.0, **ON)
        assert generation.output.token_ids == continuation(PROMPT, 40)
        assert b.target.met_count > 3 and hits(generation) > 3


@pytest.mark.parametrize("max_tokens", range(1, 9))
async def test_nothing_is_prepared_or_verified_beyond_the_end(max_tokens: int) -> None:
    async with bench() as b:
        b.target.delay = 0.003
        await b.run(max_tokens, 4, 0.0, **ON)
        last = len(PROMPT) + max_tokens
        assert all(key.base_length + key.accepted_count + 2 < last for key in b.target.conditions)
        assert all(held.max_length == last - 1 for held in b.draft.preparations if held is not None)


async def test_an_output_that_stops_leaves_nothing_behind() -> None:
    tokens = continuation(PROMPT, 30)
    async with bench() as b:
        b.target.delay = 0.003
        generation = b.generation(60, 4, sampling=SamplingOptions(stop_token_ids=(tokens[20],)), **ON)
        assert [token async for part in generation.parts() for token in part.token_ids] == tokens[:21]
        assert not [key for key in b.target.conditions if key.next_token_id == tokens[20]]
        await b.check_closed()


@pytest.mark.parametrize("count", [1, 3, 6])
async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(count: int) -> None:
    async with bench() as b:
        b.target.delay = b.draft.push_delay = 0.003
        parts = b.generation(60, 4, **ON).parts()
        for _ in range(count):
            await anext(parts)
        await parts.aclose()
        await b.check_closed()


async def test_outputs_that_are_forked_work_ahead() -> None:
    async with bench() as b:
        b.target.delay = 0.003
        choices = b.choices(30, 4, n=3, best_of=3, **ON)
        tokens: dict[int, list[int]] = {}
        async for index, _, part in choices.parts():
            tokens.setdefault(index, []).extend(part.token_ids)
        assert tokens == {i: continuation(PROMPT, 30, i) for i in range(3)}
        assert all(hits(generation) > 2 for generation in choices.generations)
        assert b.target.forked == [len(PROMPT)] * 2
        await b.check_closed()


ERRORS = st.sampled_from([AWAY, StaleStepError("past"), SequenceNotFoundError("x"), CapacityExhaustedError("full")])


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(0, 40), ERRORS, max_size=6),
    st.dictionaries(st.integers(0, 40), ERRORS, max_size=6),
    st.dictionaries(st.integers(0, 30), ERRORS, max_size=6),
    st.sets(st.tuples(st.integers(0, 20), st.integers(0, 4)), max_size=30),
    st.sampled_from([0.0, 0.001, 0.003]),
)
def test_no_schedule_of_faults_changes_a_token(
    before: dict[int, Exception],
    after: dict[int, Exception],
    proposals: dict[int, Exception],
    missing: set[tuple[int, int]],
    push_delay: float,
) -> None:
    async def run() -> None:
        async with bench() as b:
            b.target.delay, b.draft.push_delay = 0.001, push_delay
            b.target.faults.before, b.target.faults.after, b.draft.faults.before = before, after, proposals
            b.draft.prepares = lambda step, accepted_count: (step, accepted_count) not in missing
            await b.run(24, 4, 0.0, **ON)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
        asyncio.run(run())
