"""The loop of one request, above all when a peer fails: the tokens stay the target's own."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.deadline import Deadline
from coordinator.outputs import proposals
from coordinator.outputs.generation import Generation, Round
from coordinator.peers import backoff, target_session
from coordinator.peers.recovery import Recovery
from specpair.errors import (
    CapacityExhaustedError,
    ForwardFailedError,
    InvalidDistributionError,
    InvalidFieldError,
    NotFiniteError,
    PeerUnavailableError,
    SequenceNotFoundError,
    ShuttingDownError,
    SpecpairError,
    StaleStepError,
    VocabularyMismatchError,
)
from specpair.options import SamplingOptions
from tests.unit.coordinator.fake_peers import FakeDraft, FakeTarget, continuation, logprob, model_info
from tests.unit.coordinator.pair_bench import AWAY, CONFIG, PROMPT, bench, drafts_of, request, targets_of, until

OUT_OF_TIME = PeerUnavailableError("no answer", timeout=0.05)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_DELAY", 0.001)


async def collect(generation: Generation) -> list[Round]:
    return [round_ async for round_ in generation.rounds()]


async def test_the_tokens_and_numbers_of_a_run_without_faults() -> None:
    async with bench() as b:
        generation = b.generation(max_tokens=10)
        rounds = await collect(generation)
        # The draft is wrong at every fifth token of the history, and the prompt has 3.
        assert [[str(origin) for origin in r.origins] for r in rounds] == [
            ["target"],
            ["accepted", "correction"],
            ["accepted", "accepted", "accepted", "accepted", "bonus"],
            ["accepted", "bonus"],
        ]
        assert [len(r.rejected_ids) for r in rounds] == [0, 3, 0, 0]
        assert [token for r in rounds for token in r.token_ids] == continuation(PROMPT, 10)
        acceptance = generation.acceptance
        assert (acceptance.round_count, acceptance.draft_round_count) == (3, 3)
        assert (acceptance.draft_token_count, acceptance.accepted_token_count) == (9, 6)
        assert acceptance.drafted_per_position == [3, 2, 2, 2]
        assert acceptance.accepted_per_position == [3, 1, 1, 1]
        assert (acceptance.draft_time_us, acceptance.verify_time_us, acceptance.network_time_us) == (30, 30, 9)
        assert acceptance.tokens_per_round(10) == 3.0
        assert b.target.steps == [0, 1, 2, 3]
        await b.check_closed()


async def test_plain_decoding_never_asks_the_draft() -> None:
    async with bench() as b:
        generation = await b.run(count=0)
        assert not b.draft.opened and not b.draft.counts
        assert generation.acceptance.round_count == 39
        assert generation.acceptance.fallback_count == 0


async def test_without_a_draft_every_round_is_plain_and_none_is_a_fallback() -> None:
    async with bench(with_draft=False) as b:
        generation = await b.run()
        assert generation.acceptance.draft_round_count == 0
        assert generation.acceptance.fallback_count == 0


async def test_a_block_never_passes_max_tokens() -> None:
    async with bench() as b:
        await b.run(max_tokens=4, count=8)
        assert b.draft.counts[0] == 2


@pytest.mark.parametrize(("target_len", "draft_len"), [(30, 200), (200, 30)])
async def test_blocks_shrink_towards_the_end_of_either_model(target_len: int, draft_len: int) -> None:
    async with bench(target_len=target_len, draft_len=draft_len) as b:
        generation = await b.run(max_tokens=27)
        assert generation.acceptance.fallback_count == 0
        assert len(b.draft.counts) > 2


async def test_a_prompt_too_long_for_the_draft_is_decoded_plainly() -> None:
    async with bench(draft_len=4) as b:
        generation = await b.run()
        assert not b.draft.opened
        assert generation.acceptance.fallback_count == 0


async def test_the_first_token_does_not_wait_for_the_draft() -> None:
    async with bench() as b:
        b.draft.open_delay = 0.1
        rounds = b.generation().rounds()
        await anext(rounds)
        assert not b.draft.opened
        await rounds.aclose()
        await b.check_closed()


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
        rounds = b.generation().rounds()
        for _ in range(3):
            await anext(rounds)
        b.draft.held.clear()
        generated = [token for r in [r async for r in rounds] for token in r.token_ids]
        assert len(b.draft.opened) == 2
        tokens, prompt_length = b.draft.opened[1]
        assert prompt_length == len(PROMPT)
        assert tokens[: len(PROMPT)] == list(PROMPT) and tokens[-1] not in PROMPT
        assert generated == continuation(PROMPT, 40)[-len(generated) :]


async def test_a_restarted_draft_is_compared_again_and_then_used() -> None:
    async with bench() as b:
        rounds = b.generation(max_tokens=150).rounds()
        for _ in range(3):
            await anext(rounds)
        b.draft.restart()
        asked = len(b.draft.counts)
        async for _ in rounds:
            await asyncio.sleep(0.001)
        assert len(b.draft.counts) > asked
        draft = b.pair.draft
        assert draft is not None and draft.info is not None and draft.info.instance_id == "d0+"


async def test_a_restarted_draft_of_another_vocabulary_is_not_used() -> None:
    async with bench() as b:
        rounds = b.generation(max_tokens=150).rounds()
        for _ in range(3):
            await anext(rounds)
        b.draft.restart()
        b.draft.model = model_info("other", vocab_size=50)
        asked = len(b.draft.counts)
        async for _ in rounds:
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


async def test_a_lost_target_is_opened_again_and_asked_the_same_step() -> None:
    async with bench() as b:
        rounds = b.generation().rounds()
        for _ in range(3):
            await anext(rounds)
        b.target.restart()
        async for _ in rounds:
            pass
        assert [prompt_length for _, prompt_length in b.target.opened] == [3, 3]
        assert b.target.opened[1][0] == [*PROMPT, *continuation(PROMPT, len(b.target.opened[1][0]) - 3)]
        assert b.target.steps[:6] == [0, 1, 2, 3, 3, 4]
        await b.check_closed()


async def test_a_lost_answer_is_asked_for_again_with_the_same_body() -> None:
    async with bench() as b:
        b.target.faults.after = {0: AWAY, 2: AWAY, 3: AWAY}
        await b.run()
        assert b.target.steps[:6] == [0, 0, 1, 1, 1, 2]
        assert len(b.target.opened) == 1


async def test_a_target_that_stays_away_fails_the_request_after_its_timeout() -> None:
    async with bench() as b:
        b.target.faults.before = dict.fromkeys(range(2, 10_000), AWAY)
        generation = b.generation()
        with pytest.raises(PeerUnavailableError, match="target could not be reached within 1 s"):
            await collect(generation)
        assert generation.output.token_ids
        await b.check_closed()


async def test_a_target_that_comes_back_with_another_vocabulary_ends_the_request() -> None:
    async with bench() as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        b.target.restart()
        b.target.model = model_info("other", vocab_size=50)
        with pytest.raises(VocabularyMismatchError):
            await anext(rounds)
        await b.check_closed()


async def test_a_full_target_refuses_at_once() -> None:
    async with bench() as b:
        b.target.open_faults.before = {0: CapacityExhaustedError("full")}
        with pytest.raises(CapacityExhaustedError):
            await collect(b.generation())
        await b.check_closed()


async def test_a_full_draft_only_costs_its_proposals() -> None:
    async with bench() as b:
        b.draft.open_faults.before = {0: CapacityExhaustedError("full"), 1: CapacityExhaustedError("full")}
        generation = await b.run(pause=0.003)
        assert generation.acceptance.fallback_count >= 1
        assert generation.acceptance.draft_round_count >= 1


@pytest.mark.parametrize("round_count", [0, 1, 4])
async def test_both_sequences_are_closed_when_the_client_goes_away(round_count: int) -> None:
    async with bench() as b:
        rounds = b.generation().rounds()
        for _ in range(round_count):
            await anext(rounds)
        await rounds.aclose()
        await b.check_closed()


async def test_both_sequences_are_closed_when_the_task_is_cancelled() -> None:
    async with bench() as b:
        b.draft.delay = 0.1
        task = asyncio.create_task(collect(b.generation()))
        await asyncio.sleep(0.02)
        assert b.target.held and b.draft.held
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await b.check_closed()


ERRORS = st.sampled_from([AWAY, NotFiniteError(), CapacityExhaustedError("full"), InvalidDistributionError("x", "y")])
SCHEDULES = st.dictionaries(st.integers(0, 30), ERRORS, max_size=8)
TARGET_SCHEDULES = st.dictionaries(st.integers(0, 30), st.just(AWAY), max_size=6)


@given(SCHEDULES, SCHEDULES, SCHEDULES, TARGET_SCHEDULES, TARGET_SCHEDULES)
def test_no_schedule_of_faults_changes_a_token(
    before: dict[int, Exception],
    after: dict[int, Exception],
    opening: dict[int, Exception],
    target_before: dict[int, Exception],
    target_after: dict[int, Exception],
) -> None:
    async def run() -> None:
        async with bench() as b:
            b.draft.faults.before, b.draft.faults.after, b.draft.open_faults.before = before, after, opening
            b.target.faults.before, b.target.faults.after = target_before, target_after
            await b.run()
            steps = b.target.steps
            assert steps == sorted(steps), "steps must never go back"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "FIRST_DELAY", 0.0001)
        asyncio.run(run())


async def test_logprobs_come_with_their_tokens_and_are_cut_off_with_them() -> None:
    (stop,) = continuation(PROMPT, 7)[5:6]
    assert stop not in continuation(PROMPT, 5)
    async with bench() as b:
        generation = b.generation(logprobs=2, sampling=SamplingOptions(stop_token_ids=(stop,)))
        rounds = await collect(generation)
        assert [len(r.token_ids) for r in rounds] == [1, 2, 3], "the last block is cut in the middle"
        expected = [logprob(len(PROMPT) + i, token) for i, token in enumerate(continuation(PROMPT, 6))]
        entries = [entry for r in rounds for entry in r.logprobs]
        assert [entry.logprob for entry in entries] == pytest.approx(expected)
        assert {len(entry.top_token_ids) for entry in entries} == {2}
        assert generation.cumulative_logprob == pytest.approx(sum(expected))
        assert generation.mean_logprob == pytest.approx(sum(expected) / 6)


async def test_without_being_asked_for_there_are_no_logprobs() -> None:
    async with bench() as b:
        assert not any([r.logprobs for r in await collect(b.generation())])


@pytest.mark.parametrize("extra", [1, -1])
async def test_a_verdict_with_logprobs_for_other_tokens_fails_the_request(extra: int) -> None:
    async with bench() as b:
        b.target.extra_logprobs = extra
        with pytest.raises(SpecpairError, match=f"the target sent {1 + extra} logprobs for 1 tokens"):
            await collect(b.generation(logprobs=0))
        await b.check_closed()


async def test_the_prompt_is_repeated_before_the_first_token() -> None:
    async with bench() as b:
        rounds = await collect(b.generation(max_tokens=2, echo=True, prompt_text="Once"))
        assert [(r.text, len(r.token_ids), r.is_last) for r in rounds] == [
            ("Once", 0, False),
            ("", 1, False),
            ("", 1, True),
        ]


async def test_the_prompt_alone_needs_no_sequence() -> None:
    async with bench() as b:
        generation = b.generation(max_tokens=0, echo=True, prompt_text="Once")
        rounds = await collect(generation)
        assert [(r.text, r.is_last) for r in rounds] == [("Once", True)]
        assert generation.output.finish_reason == "length"
        assert not b.target.opened and not b.draft.opened


async def test_the_start_waits_for_a_target_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(model_info())
    target.is_serving = False
    async with targets_of(target).watched() as targets:
        with pytest.raises(PeerUnavailableError, match=r"none of fake:1 could be reached within 0\.02 s"):
            await targets.wait_until_there(0.02)
        target.say_health(is_serving=True)
        await targets.wait_until_there(1.0)
        assert targets.info is target.model


async def test_the_start_refuses_another_vocabulary_and_goes_on_without_an_absent_draft() -> None:
    absent = FakeDraft(model_info(), "absent:1")
    absent.is_serving = False
    async with targets_of(FakeTarget(model_info())).watched() as targets:
        await targets.wait_until_there(1.0)
        async with drafts_of(targets.model, FakeDraft(model_info(vocab_size=50))).watched() as drafts:
            with pytest.raises(VocabularyMismatchError):
                await drafts.wait_until_there(1.0)
        async with drafts_of(targets.model, absent).watched() as drafts:
            with pytest.raises(PeerUnavailableError):
                await drafts.wait_until_there(0.02)
            assert drafts.choose(PROMPT) is None


async def test_a_request_moves_to_another_target_and_loses_no_token() -> None:
    async with bench(target_count=2) as b:
        generation = b.generation()
        rounds = generation.rounds()
        for _ in range(3):
            await anext(rounds)
        first = next(target for target in b.targets if target.held)
        other = next(target for target in b.targets if target is not first)
        first.faults.after = dict.fromkeys(range(1000), AWAY)
        async for _ in rounds:
            pass
        assert generation.output.token_ids == continuation(PROMPT, 40)
        assert len(other.opened) == 1 and other.opened[0][1] == len(PROMPT)
        assert b.pair.target.recoveries == {Recovery.REPEATED: 0, Recovery.REOPENED: 0, Recovery.MOVED: 1}
        assert other.steps[0] == first.steps[-1], "the lost step is judged again with its own noise"
        first.faults.before = {}
        await b.check_closed()


async def test_a_late_call_to_an_earlier_opening_finds_nothing() -> None:
    """It would be taken for the next step, behind tokens that another target may have decided otherwise."""
    async with bench(target_count=2) as b:
        generation = b.generation(count=0)
        rounds = generation.rounds()
        for _ in range(3):
            await anext(rounds)
        first = next(target for target in b.targets if target.held)
        other = next(target for target in b.targets if target is not first)
        late = (first.names[0], first.steps[-1] + 1, len(PROMPT) + 3)
        first.faults.before = dict.fromkeys(range(first.faults.count, 10_000), AWAY)
        await anext(rounds)
        await until(lambda: not first.held)  # its place there is free for others
        assert other.held
        first.faults.before = {}
        other.faults.before = dict.fromkeys(range(other.faults.count, 10_000), AWAY)
        await anext(rounds)
        await until(lambda: bool(first.held) and not other.held)
        with pytest.raises(SequenceNotFoundError):
            first.locate(*late)
        await rounds.aclose()
        await b.check_closed()


async def test_what_is_opened_again_takes_one_place() -> None:
    async with bench() as b:
        rounds = b.generation().rounds()
        for _ in range(3):
            await anext(rounds)
        for peer in (b.target, b.draft):
            peer.faults.before = {peer.faults.count: StaleStepError("under way")}
        await anext(rounds)
        assert [len(peer.names) for peer in (b.target, b.draft)] == [2, 2]
        assert [len(peer.held) for peer in (b.target, b.draft)] == [1, 1]
        await rounds.aclose()
        await b.check_closed()


async def test_a_target_that_drains_is_left_before_it_ends() -> None:
    async with bench(target_count=2) as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        first = next(target for target in b.targets if target.held)
        first.say_health(is_serving=False)
        first.faults.before = dict.fromkeys(range(1000), ShuttingDownError())
        generated = [token for r in [r async for r in rounds] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        assert first.faults.count == 2, "the first token, and one call that was refused"


async def test_new_sequences_go_to_the_least_loaded_target_that_serves() -> None:
    async with bench(target_count=3) as b:
        b.targets[1].say_health(is_serving=False)
        outputs = [b.generation(prompt_ids=(i, 1, 2)).rounds() for i in range(12)]
        for rounds in outputs:
            await anext(rounds)
        assert len(b.targets[1].opened) == 0
        assert {len(b.targets[0].opened), len(b.targets[2].opened)} <= {5, 6, 7}
        for rounds in outputs:
            await rounds.aclose()
        await b.check_closed()


async def test_a_full_target_sends_new_sequences_to_another() -> None:
    async with bench(target_count=2) as b:
        for target in b.targets:
            target.open_faults.before = {0: CapacityExhaustedError("full")}
        with pytest.raises(CapacityExhaustedError):
            await collect(b.generation())
        b.targets[0].open_faults.before = dict.fromkeys(range(1000), CapacityExhaustedError("full"))
        await b.run()


async def test_a_request_goes_on_with_another_draft() -> None:
    async with bench(draft_count=2) as b:
        rounds = b.generation(max_tokens=100).rounds()
        for _ in range(3):
            await anext(rounds)
        first = next(draft for draft in b.drafts if draft.held)
        other = next(draft for draft in b.drafts if draft is not first)
        first.faults.before = dict.fromkeys(range(1000), AWAY)
        async for _ in rounds:
            pass
        assert len(other.counts) > 10
        assert first.faults.count <= 5, "it is left alone"


async def test_a_failed_forward_pass_is_repeated_and_one_that_always_fails_ends_the_request() -> None:
    async with bench() as b:
        b.target.faults.before = {3: ForwardFailedError(), 4: ForwardFailedError()}
        await b.run()
        b.target.faults.before = dict.fromkeys(range(b.target.faults.count + 2, 1000), ForwardFailedError())
        with pytest.raises(ForwardFailedError):
            await collect(b.generation())
        await b.check_closed()


async def test_a_proposal_that_the_target_cannot_bear_costs_no_token() -> None:
    async with bench() as b:
        verify, failed = b.target.verify, list[int]()

        async def fail_with_proposals(name: str, step: int, base: int, proposal: Any, *rest: Any) -> Any:
            if proposal is not None:
                failed.append(step)
                raise ForwardFailedError
            return await verify(name, step, base, proposal, *rest)

        b.target.verify = fail_with_proposals  # type: ignore[method-assign]
        generation = await b.run(pause=0.003)
        assert failed and generation.acceptance.fallback_count == len(set(failed))


async def test_a_proposal_that_is_too_large_to_be_passed_on_costs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "MAX_PROPOSAL_BYTES", 0)
    async with bench() as b:
        generation = await b.run(pause=0.003)
        assert generation.acceptance.fallback_count and not generation.acceptance.draft_token_count


async def test_two_targets_that_hang_though_they_say_they_serve_end_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_session, "CALL_SECONDS", 0.05)
    async with bench(target_count=2, with_draft=False) as b:
        pair = replace(b.pair, config=replace(CONFIG, target_timeout=0.15))
        rounds = Generation(request(), pair).rounds()
        await anext(rounds)
        for target in b.targets:
            target.delay = 100.0
        async with asyncio.timeout(20.0):
            with pytest.raises(PeerUnavailableError):
                await anext(rounds)
        await b.check_closed()


async def test_what_a_restarted_target_has_to_read_again_gets_the_time_that_it_got_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target_session, "CALL_SECONDS", 0.05)
    async with bench(with_draft=False) as b:
        pair = replace(b.pair, config=replace(CONFIG, target_timeout=0.1))
        rounds = Generation(request(), pair).rounds()
        await anext(rounds)
        await asyncio.sleep(0.1 + len(PROMPT) / target_session.LEAST_TOKENS_PER_SECOND)
        b.target.restart()
        b.target.delay = 100.0
        asyncio.get_running_loop().call_later(0.25, setattr, b.target, "delay", 0.0)
        await anext(rounds)
        assert b.pair.target.links["target:1"].breaker.is_closed
        await rounds.aclose()


async def test_calls_that_end_before_their_time_are_not_repeated_without_a_pause() -> None:
    async with bench(with_draft=False) as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        b.target.faults.before = dict.fromkeys(range(100_000), OUT_OF_TIME)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(rounds)
        assert b.target.faults.count < 700, "at most one a millisecond, by the first delay of these tests"


async def test_a_clients_deadline_is_the_patience_of_its_request() -> None:
    async with bench() as b:
        b.target.faults.before = dict.fromkeys(range(2, 10_000), AWAY)
        generation = Generation(b.generation().request, b.pair, deadline=Deadline.after(0.1))
        with pytest.raises(PeerUnavailableError, match=r"could not be reached within 0\.\d"):
            await collect(generation)
        assert generation.output.token_ids, "what it has stays"


async def test_an_output_goes_on_behind_tokens_received_before() -> None:
    async with bench() as b:
        received = tuple(continuation(PROMPT, 17))
        generation = b.generation(resumed_ids=received)
        rounds = await collect(generation)
        assert [token for r in rounds for token in r.token_ids] == continuation(PROMPT, 40)[17:]
        assert generation.output.new_token_count == 23
        assert b.target.steps[0] == 17, "no step of the call before is used again"
        assert b.target.opened[0] == ([*PROMPT, *received], len(PROMPT))
        whole = b.generation(resumed_ids=tuple(continuation(PROMPT, 40)))
        (end,) = await collect(whole)
        assert end.is_last and not end.token_ids and whole.output.finish_reason == "length"
        await b.check_closed()


async def test_a_client_that_is_slow_to_read_is_not_in_the_time_between_tokens() -> None:
    async with bench() as b:
        generation = b.generation(max_tokens=10)
        async for _ in generation.rounds():
            await asyncio.sleep(0.2)
        value = b.pair.metrics.registry.get_sample_value
        assert value("specpair_inter_token_latency_seconds_count") == 9
        spent = value("specpair_inter_token_latency_seconds_sum")
        assert spent is not None and 0 < spent < 0.2


async def test_sequences_are_closed_once_the_peer_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        close, is_away = FakeTarget.close_sequence, True

        async def close_if_there(self: FakeTarget, sequence_id: str, within: float) -> None:
            if is_away:
                raise AWAY
            await close(self, sequence_id, within)

        monkeypatch.setattr(FakeTarget, "close_sequence", close_if_there)
        b.target.say_health(is_serving=False)
        await rounds.aclose()
        await asyncio.sleep(0.02)
        assert b.target.held
        is_away = False
        b.target.say_health(is_serving=True)
        await until(lambda: not b.target.held)
        await b.check_closed()


async def test_a_target_that_came_back_is_gone_to_before_it_has_answered_anything() -> None:
    async with bench(target_count=2) as b:
        links = b.pair.target.links
        links["target:2"].fail(AWAY)
        b.targets[1].say_health(is_serving=False)
        await until(lambda: not links["target:2"].is_there)
        rounds = b.generation().rounds()
        await anext(rounds)
        assert b.targets[0].held
        b.targets[1].say_health(is_serving=True)
        await until(lambda: links["target:2"].is_there)
        b.targets[0].faults.before = dict.fromkeys(range(1000), AWAY)
        generated = [token for r in [r async for r in rounds] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        assert b.targets[1].opened


async def test_an_impatient_client_is_not_the_targets_fault() -> None:
    async with bench() as b:
        b.target.delay = 0.2
        generation = Generation(b.generation().request, b.pair, deadline=Deadline.after(0.05))
        with pytest.raises(PeerUnavailableError):
            await collect(generation)
        assert b.pair.target.links["target:1"].breaker.is_closed


@pytest.mark.parametrize("patience", [-0.1, 0.2])
async def test_a_deadline_ends_a_request_whatever_else_could_be_tried(patience: float) -> None:
    async with bench(target_count=2) as b:
        for target in b.targets:
            target.delay = 0.03
        generation = Generation(
            b.generation(max_tokens=150, count=0).request, b.pair, deadline=Deadline.after(patience)
        )
        async with asyncio.timeout(patience + 1.0):
            with pytest.raises(PeerUnavailableError):
                await collect(generation)
        assert sum(b.pair.target.recoveries.values()) <= 2
        assert all(link.breaker.is_closed for link in b.pair.target.links.values())


async def test_one_full_and_one_broken_target_are_not_asked_without_a_pause() -> None:
    async with bench(target_count=2) as b:
        b.targets[0].open_faults.before = dict.fromkeys(range(100_000), CapacityExhaustedError("full"))
        b.targets[1].open_faults.before = dict.fromkeys(range(100_000), AWAY)
        async with asyncio.timeout(10.0):
            with pytest.raises((CapacityExhaustedError, PeerUnavailableError)):
                await collect(b.generation())
        assert b.targets[1].open_faults.count < 200


async def test_a_target_that_failed_once_is_used_again_and_gone_to() -> None:
    async with bench(target_count=2) as b:
        links = b.pair.target.links
        links["target:1"].fail(AWAY)
        await asyncio.sleep(0.01)
        assert {b.pair.target.choose([i]) for i in range(20)} == set(links.values())
        links["target:2"].fail(AWAY)
        b.targets[1].faults.before = dict.fromkeys(range(1000), AWAY)
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5.0):
            await b.run()


async def test_a_target_that_hangs_though_it_says_it_serves_is_left_for_another() -> None:
    async with bench(target_count=2) as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        hung = next(target for target in b.targets if target.held)
        hung.delay = 100.0
        generated = [token for r in [r async for r in rounds] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        other = next(target for target in b.targets if target is not hung)
        assert b.pair.target.links[other.address].breaker.is_closed


async def test_a_draft_that_hangs_though_it_says_it_serves_costs_its_deadline_once() -> None:
    async with bench() as b:
        rounds = b.generation(max_tokens=150).rounds()
        await anext(rounds)
        b.draft.delay = 100.0
        gaps: list[float] = []
        start = time.monotonic()
        async for _ in rounds:
            gaps.append(time.monotonic() - start)
            await asyncio.sleep(0.002)
            start = time.monotonic()
        paid = [gap for gap in gaps if gap > 0.9 * CONFIG.draft_timeout]
        assert 1 <= len(paid) <= 2, "a busy machine may have a pause of its own"
        assert b.draft.faults.count <= 8, "each further pause is twice as long"


async def test_an_instance_that_goes_is_in_the_log_though_nothing_runs_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "coordinator.peers.link")
    async with bench() as b:
        link, drafts = b.pair.target.links["target:1"], b.pair.draft
        b.target.say_health(is_serving=False)
        await until(lambda: not link.is_there)
        b.target.say_health(is_serving=True)
        await until(lambda: link.is_there)

        assert drafts is not None
        b.draft.die()
        await until(lambda: not drafts.is_there)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "the target at target:1 takes nothing more at present") in said
    assert ("WARNING", "the draft at draft:1 went away") in said


async def test_a_target_that_was_let_go_is_left() -> None:
    async with bench(target_count=2) as b:
        rounds = b.generation().rounds()
        await anext(rounds)
        held = next(target for target in b.targets if target.held)
        held.faults.before = dict.fromkeys(range(1000), ShuttingDownError())
        b.pair.target.links[held.address].release()
        generated = [token for r in [r async for r in rounds] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]


async def test_another_draft_is_not_kept_waiting_by_a_trial_of_the_first() -> None:
    async with bench(draft_count=2) as b:
        rounds = b.generation(max_tokens=150).rounds()
        for _ in range(3):
            await anext(rounds)
        first = next(draft for draft in b.drafts if draft.held)
        other = next(draft for draft in b.drafts if draft is not first)
        first.delay = 100.0
        async for _ in rounds:
            await asyncio.sleep(0.002)
        assert len(other.counts) > 10
        assert b.pair.draft is not None and b.pair.draft.links[other.address].breaker.is_closed
