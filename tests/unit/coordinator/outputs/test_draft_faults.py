"""A draft that fails costs proposals, never a token."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from coordinator.outputs import proposal_problem
from coordinator.peers.answers import GuessCounts, Proposed
from coordinator.serving.responses import generation_summary
from specpair.errors import (
    BaseLengthMismatchError,
    CapacityExhaustedError,
    ForwardFailedError,
    InvalidDistributionError,
    InvalidFieldError,
    NotFiniteError,
    SpecpairError,
)
from specpair.options import MAX_UINT32
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.fake_peers import FakeDraft, FakeTarget
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import (
    AWAY,
    CONFIG,
    PROMPT,
    bench,
    collect,
    drafts_of,
    targets_of,
)


@pytest.mark.parametrize(
    "error", [AWAY, NotFiniteError(), InvalidDistributionError("proposal", "is odd"), SpecpairError("?")]
)
async def test_a_failing_draft_costs_proposals_and_no_token(error: SpecpairError) -> None:
    async with bench() as b:
        b.draft.faults.before = dict.fromkeys(range(2, 5), error)
        generation = await b.run(pause=0.003)
        assert generation.acceptance.fallback_count >= 3
        assert generation.acceptance.accepted_token_count > 5


async def test_a_draft_that_hangs_is_waited_for_no_longer_than_its_timeout() -> None:
    async with bench() as b:
        b.draft.delay = 30.0
        generation = b.generation(max_tokens=3)
        async with asyncio.timeout(5.0):
            await collect(generation)
        assert generation.output.token_ids == continuation(PROMPT, 3)
        assert generation.acceptance.fallback_count >= 1


async def test_a_draft_that_refuses_the_tokens_is_not_asked_again() -> None:
    async with bench() as b:
        b.draft.faults.before = {2: InvalidFieldError("appended_token_ids", "holds 96")}
        await b.run(pause=0.003)
        assert b.draft.faults.count == 3


async def test_a_draft_that_lost_the_sequence_is_opened_again_from_the_tokens() -> None:
    async with bench() as b:
        parts = b.generation().parts()
        for _ in range(3):
            await anext(parts)
        b.draft.held.clear()
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert len(b.draft.opened) == 2
        tokens, prompt_length = b.draft.opened[1]
        assert prompt_length == len(PROMPT)
        assert tokens[: len(PROMPT)] == list(PROMPT) and tokens[-1] not in PROMPT
        assert generated == continuation(PROMPT, 40)[-len(generated) :]


@pytest.mark.parametrize("held_length", ["", "²", "9" * 5000, "-3"])
async def test_a_draft_that_says_nonsense_of_what_it_holds_is_opened_again(held_length: str) -> None:
    async with bench() as b:
        error = BaseLengthMismatchError(9, 3)
        error.metadata = {"held_length": held_length}
        b.draft.faults.before = {2: error}
        await b.run()
        assert len(b.draft.opened) == 2


async def test_no_count_of_a_draft_is_too_large_for_the_summary() -> None:
    async with bench() as b:
        propose = b.draft.propose

        async def boast(*call: Any, **more: Any) -> Proposed:
            return replace(await propose(*call, **more), guesses=GuessCounts(MAX_UINT32, MAX_UINT32, 1))

        b.draft.propose = boast  # type: ignore[method-assign]
        generation = await b.run()
        said = generation_summary(generation).speculation.own_draft
        assert said.guessed_token_count == said.accepted_guess_count == MAX_UINT32
        assert said.pass_count == generation.acceptance.draft_round_count > 1


async def test_a_restarted_draft_is_compared_again_and_then_used() -> None:
    async with bench() as b:
        parts = b.generation(max_tokens=150).parts()
        for _ in range(3):
            await anext(parts)
        b.draft.restart()
        asked = len(b.draft.counts)
        async for _ in parts:
            await asyncio.sleep(0.001)
        assert len(b.draft.counts) > asked
        draft = b.pair.draft
        assert draft is not None and draft.info is not None and draft.info.instance_id == "d0+"


async def test_a_restarted_draft_of_another_vocabulary_is_not_used() -> None:
    async with bench() as b:
        parts = b.generation(max_tokens=150).parts()
        for _ in range(3):
            await anext(parts)
        b.draft.restart()
        b.draft.model = model_info("other", vocab_size=50)
        asked = len(b.draft.counts)
        async for _ in parts:
            await asyncio.sleep(0.001)
        assert len(b.draft.counts) == asked


async def test_more_tokens_than_asked_for_are_not_verified() -> None:
    async with bench() as b:
        b.draft.extra_count = 1
        generation = await b.run()
        assert generation.acceptance.draft_token_count == 0
        assert generation.acceptance.fallback_count > 0


async def test_an_empty_proposal_is_a_plain_round_and_no_fallback() -> None:
    async with bench() as b:
        b.draft.knows_nothing = True
        generation = await b.run()
        assert len(b.draft.counts) > 30
        acceptance = generation.acceptance
        assert (acceptance.draft_round_count, acceptance.draft_token_count, acceptance.fallback_count) == (0, 0, 0)


async def test_a_draft_without_a_model_is_taken_without_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = FakeDraft(model_info(vocab_size=0))
    monkeypatch.setattr(draft, "tokenizer_files", None)
    async with targets_of(FakeTarget(model_info())).watched() as targets:
        await targets.wait_until_there(1.0)
        async with drafts_of(targets.model, draft).watched() as drafts:
            await drafts.wait_until_there(1.0)
            assert drafts.choose(PROMPT) is not None


async def test_a_proposal_that_the_target_refuses_is_dropped_and_its_step_decoded_plainly() -> None:
    async with bench() as b:
        b.target.faults.before = {2: InvalidDistributionError("counts", "do not sum up")}
        generation = await b.run()
        assert generation.acceptance.fallback_count >= 1
        assert b.target.steps[:4] == [0, 1, 2, 3]


async def test_a_full_draft_only_costs_its_proposals() -> None:
    async with bench() as b:
        b.draft.open_faults.before = {0: CapacityExhaustedError("full"), 1: CapacityExhaustedError("full")}
        generation = await b.run(pause=0.003)
        assert generation.acceptance.fallback_count >= 1
        assert generation.acceptance.draft_round_count >= 1


async def test_a_request_goes_on_with_another_draft() -> None:
    async with bench(draft_count=2) as b:
        parts = b.generation(max_tokens=100).parts()
        for _ in range(3):
            await anext(parts)
        first = next(draft for draft in b.drafts if draft.held)
        other = next(draft for draft in b.drafts if draft is not first)
        first.faults.before = dict.fromkeys(range(1000), AWAY)
        async for _ in parts:
            pass
        assert len(other.counts) > 10
        assert first.faults.count <= 5, "it is left alone"


async def test_a_proposal_that_the_target_cannot_bear_costs_no_token() -> None:
    async with bench() as b:
        verify, failed = b.target.verify, list[int]()

        async def fail_with_proposals(name: str, step: int, base: int, proposal: Any, *rest: Any, **more: Any) -> Any:
            if proposal is not None:
                failed.append(step)
                raise ForwardFailedError
            return await verify(name, step, base, proposal, *rest, **more)

        b.target.verify = fail_with_proposals  # type: ignore[method-assign]
        generation = await b.run(pause=0.003)
        assert failed and generation.acceptance.fallback_count == len(set(failed))


async def test_a_proposal_that_is_too_large_to_be_passed_on_costs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal_problem, "MAX_PROPOSAL_BYTES", 0)
    async with bench() as b:
        generation = await b.run(pause=0.003)
        assert generation.acceptance.fallback_count and not generation.acceptance.draft_token_count


async def test_a_draft_that_hangs_though_it_says_it_serves_costs_its_deadline_once() -> None:
    async with bench() as b:
        parts = b.generation(max_tokens=150).parts()
        await anext(parts)
        b.draft.delay = 100.0
        gaps: list[float] = []
        start = time.monotonic()
        async for _ in parts:
            gaps.append(time.monotonic() - start)
            await asyncio.sleep(0.002)
            start = time.monotonic()
        paid = [gap for gap in gaps if gap > 0.9 * CONFIG.draft_timeout]
        assert 1 <= len(paid) <= 2, "a busy machine may have a pause of its own"
        assert b.draft.faults.count <= 8, "each further pause is twice as long"


async def test_another_draft_is_not_kept_waiting_by_a_trial_of_the_first() -> None:
    async with bench(draft_count=2) as b:
        parts = b.generation(max_tokens=150).parts()
        for _ in range(3):
            await anext(parts)
        first = next(draft for draft in b.drafts if draft.held)
        other = next(draft for draft in b.drafts if draft is not first)
        first.delay = 100.0
        async for _ in parts:
            await asyncio.sleep(0.002)
        assert len(other.counts) > 10
        assert b.pair.draft is not None and b.pair.draft.links[other.address].breaker.is_closed
