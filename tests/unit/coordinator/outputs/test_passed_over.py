"""A target that goes on without a proposal, because none was there in time, changes the times and never a token."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.generation import Generation
from coordinator.outputs.proposals import MOST_PASSED_OVER
from coordinator.peers import backoff
from specpair.errors import SequenceNotFoundError
from specpair.options import Rule, SamplingOptions, WorkAhead
from specpair.rpc.retry import RetryPolicy
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, Bench, bench

GREEDY: dict[str, Any] = {"work_ahead": WorkAhead.ON, "sampling": SamplingOptions(temperature=0.0)}
COUPLED: dict[str, Any] = {"work_ahead": WorkAhead.ON, "rule": Rule.COUPLED}


def passed_over(generation: Generation) -> int:
    return generation.acceptance.ahead_counts[AheadOutcome.PLAIN]


def prepare_two_of_three(b: Bench) -> None:
    """Every third step finds no proposal, and the target does not wait for one."""
    b.target.delay = 0.003
    b.target.falls_back = lambda step: True
    b.draft.prepares = lambda step, accepted_count: step % 3 != 0


@pytest.mark.parametrize("options", [GREEDY, COUPLED])
async def test_a_round_that_was_passed_over_is_plain_and_the_next_one_is_prepared(options: dict[str, Any]) -> None:
    async with bench() as b:
        prepare_two_of_three(b)
        generation = await b.run(80, 4, 0.0, **options)
        counts = generation.acceptance.ahead_counts
        assert passed_over(generation) == b.target.gone_on_count > 3
        assert counts[AheadOutcome.HIT] > passed_over(generation)
        assert generation.acceptance.fallback_count == 0 and len(b.target.opened) == 1


async def test_the_draft_proposes_nothing_for_it() -> None:
    async with bench() as b:
        prepare_two_of_three(b)
        generation = await b.run(80, 4, 0.0, **GREEDY)
        plain = generation.acceptance.round_count - generation.acceptance.draft_round_count
        assert passed_over(generation) <= plain <= passed_over(generation) + 1, "the last token has no proposal"
        assert b.draft.has_proposal.count(False) < 4, "all but the first rounds have what was prepared, or nothing"


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
async def test_where_the_output_depends_on_proposals_the_target_waits(rule: Rule) -> None:
    """Whether a proposal is there in time may depend on its tokens (docs/exactness.md, rule 8)."""
    async with bench() as b:
        prepare_two_of_three(b)
        generation = await b.run(80, 4, 0.0, work_ahead=WorkAhead.ON, rule=rule)
        assert not b.target.allowed_steps and generation.acceptance.ahead_counts[AheadOutcome.MISS]


async def test_nor_without_work_ahead_nor_before_the_last_token() -> None:
    async with bench() as b:
        prepare_two_of_three(b)
        await b.run(40, 4, 0.0, **{**GREEDY, "work_ahead": WorkAhead.OFF})
        assert not b.target.allowed_steps
        for max_tokens in range(36, 42):
            await b.run(max_tokens, 4, 0.0, **GREEDY)
            assert b.target.allowed_steps and b.target.allowed_length < len(PROMPT) + max_tokens


async def test_a_target_that_does_not_know_of_it_is_not_told() -> None:
    """It would take the field for a part of the call."""
    async with bench() as b:
        prepare_two_of_three(b)
        (link,) = b.pair.target.links.values()
        assert link.info is not None
        link.info = replace(link.info, goes_on_plain=False)
        await b.run(80, 4, 0.0, **GREEDY)
        assert not b.target.allowed_steps and len(b.target.opened) == 1


async def test_nor_if_the_draft_prepares_nothing() -> None:
    async with bench() as b:
        prepare_two_of_three(b)
        b.draft.is_mute = True
        generation = await b.run(80, 4, 0.0, **GREEDY)
        assert not b.target.allowed_steps and generation.acceptance.draft_round_count > 10


async def test_a_draft_that_prepares_in_vain_is_asked_again() -> None:
    """Else an output whose proposals are always late would go on with single tokens."""
    async with bench() as b:
        prepare_two_of_three(b)
        b.draft.prepares = lambda step, accepted_count: False
        generation = await b.run(81, 4, 0.0, **GREEDY)
        misses = generation.acceptance.ahead_counts[AheadOutcome.MISS]
        assert misses > 3 and passed_over(generation) <= MOST_PASSED_OVER * (misses + 1)


async def test_an_output_that_stops_leaves_what_was_begun() -> None:
    tokens = continuation(PROMPT, 40)
    async with bench() as b:
        prepare_two_of_three(b)
        sampling = SamplingOptions(temperature=0.0, stop_token_ids=(tokens[20],))
        generation = b.generation(40, 4, **{**GREEDY, "sampling": sampling})
        async for _ in generation.parts():
            pass
        assert generation.output.token_ids == tokens[: tokens.index(tokens[20]) + 1]
        await b.check_closed()


@pytest.mark.parametrize("is_deaf", [True, False])
async def test_a_draft_that_hears_nothing_or_lost_the_sequence_costs_time_alone(is_deaf: bool) -> None:
    async with bench() as b:
        prepare_two_of_three(b)
        b.draft.is_deaf = is_deaf
        b.draft.faults.before = {} if is_deaf else {6: SequenceNotFoundError("lost")}
        generation = await b.run(80, 4, 0.0, **GREEDY)
        assert passed_over(generation) and generation.acceptance.draft_round_count > 5


@pytest.mark.slow
@given(
    falls=st.lists(st.booleans(), min_size=8, max_size=8),
    misses=st.lists(st.booleans(), min_size=5, max_size=5),
    lost=st.sets(st.integers(2, 30), max_size=3),
    forgotten=st.sets(st.integers(2, 30), max_size=3),
    delay=st.floats(0.0, 0.002),
)
def test_any_mixture_gives_the_same_tokens(
    falls: list[bool], misses: list[bool], lost: set[int], forgotten: set[int], delay: float
) -> None:
    """Answers of the target are lost after it went on, and it forgets the sequence."""

    async def run() -> None:
        async with bench() as b:
            b.target.delay = delay
            b.target.falls_back = lambda step: falls[step % 8]
            b.draft.prepares = lambda step, accepted_count: not misses[accepted_count % 5]
            b.target.faults.after = dict.fromkeys(lost, AWAY)
            b.target.faults.before = dict.fromkeys(forgotten, SequenceNotFoundError("forgotten"))
            await b.run(50, 4, 0.0, **COUPLED)
            assert b.target.steps == sorted(b.target.steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
        asyncio.run(run())
