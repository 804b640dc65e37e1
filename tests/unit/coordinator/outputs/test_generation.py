"""The loop of one output: its tokens, its limits, its end."""

import asyncio
import gc

import pytest

from coordinator.outputs.early_verification import EarlyVerification
from coordinator.outputs.generation import Generation
from coordinator.outputs.proposals import Proposals
from coordinator.peers import TargetSession
from coordinator.peers.draft_session import DraftSession
from specpair.errors import (
    SpecpairError,
)
from specpair.options import Rule, SamplingOptions
from tests.unit.coordinator.fake_language import continuation, logprob
from tests.unit.coordinator.pair_bench import (
    PROMPT,
    bench,
    collect,
)

PARTS = (Generation, TargetSession, DraftSession, EarlyVerification)


async def test_the_tokens_and_numbers_of_a_run_without_faults() -> None:
    async with bench() as b:
        generation = b.generation(max_tokens=10)
        parts = await collect(generation)
        # The draft is wrong at every fifth token of the history, and the prompt has 3.
        assert [[str(origin) for origin in r.origins] for r in parts] == [
            ["target"],
            ["accepted", "correction"],
            ["accepted", "accepted", "accepted", "accepted", "bonus"],
            ["accepted", "bonus"],
        ]
        assert [len(r.rejected_ids) for r in parts] == [0, 3, 0, 0]
        assert [token for r in parts for token in r.token_ids] == continuation(PROMPT, 10)
        acceptance = generation.acceptance
        assert (acceptance.round_count, acceptance.draft_round_count) == (3, 3)
        assert (acceptance.draft_token_count, acceptance.accepted_token_count) == (9, 6)
        assert acceptance.drafted_per_position == [3, 2, 2, 2]
        assert acceptance.accepted_per_position == [3, 1, 1, 1]
        times = (acceptance.draft_time, acceptance.verify_time, acceptance.network_time)
        assert times == pytest.approx((30e-6, 30e-6, 9e-6))
        assert acceptance.tokens_per_round(10) == 3.0
        assert b.target.steps == [0, 1, 2, 3]
        await b.check_closed()


async def test_an_ended_output_leaves_no_cycles_behind() -> None:
    """Its texts and proposals are gone at once, however rarely the collector looks for cycles."""
    async with bench() as b:
        gc.collect()
        gc.disable()
        try:
            others = parts()  # of other tests, whose failures keep them
            known = set(map(id, others))
            await b.run()
            assert [one for one in parts() if id(one) not in known] == []
        finally:
            gc.enable()


def parts() -> list[object]:
    """The parts of outputs that are there."""
    return [one for one in gc.get_objects() if issubclass(type(one), PARTS)]


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
        parts = b.generation().parts()
        await anext(parts)
        assert not b.draft.opened
        await parts.aclose()
        await b.check_closed()


@pytest.mark.parametrize("round_count", [0, 1, 4])
async def test_both_sequences_are_closed_when_the_client_goes_away(round_count: int) -> None:
    async with bench() as b:
        parts = b.generation().parts()
        for _ in range(round_count):
            await anext(parts)
        await parts.aclose()
        rounds = b.pair.metrics.registry.get_sample_value("specpair_spec_decode_rounds_total", {"kind": "draft"})
        assert rounds == max(round_count - 1, 0), "the last round is counted, too"
        await b.check_closed()


async def test_both_sequences_are_closed_even_if_counting_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Proposals, "_count", lambda proposals: 1 // 0)
    async with bench() as b:
        with pytest.raises(ZeroDivisionError):
            await collect(b.generation())
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


async def test_logprobs_come_with_their_tokens_and_are_cut_off_with_them() -> None:
    (stop,) = continuation(PROMPT, 7)[5:6]
    assert stop not in continuation(PROMPT, 5)
    async with bench() as b:
        generation = b.generation(logprobs=2, sampling=SamplingOptions(stop_token_ids=(stop,)))
        parts = await collect(generation)
        assert [len(r.token_ids) for r in parts] == [1, 2, 3], "the last block is cut in the middle"
        expected = [logprob(len(PROMPT) + i, token) for i, token in enumerate(continuation(PROMPT, 6))]
        entries = [entry for r in parts for entry in r.logprobs]
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
        parts = await collect(b.generation(max_tokens=2, echo=True, prompt_text="Once"))
        assert [(r.text, len(r.token_ids), r.is_last) for r in parts] == [
            ("Once", 0, False),
            ("", 1, False),
            ("", 1, True),
        ]


async def test_the_prompt_alone_needs_no_sequence() -> None:
    async with bench() as b:
        generation = b.generation(max_tokens=0, echo=True, prompt_text="Once")
        parts = await collect(generation)
        assert [(r.text, r.is_last) for r in parts] == [("Once", True)]
        assert generation.output.finish_reason == "length"
        assert not b.target.opened and not b.draft.opened


async def test_an_output_goes_on_behind_tokens_received_before() -> None:
    async with bench() as b:
        received = tuple(continuation(PROMPT, 17))
        generation = b.generation(resumed_ids=received)
        parts = await collect(generation)
        assert [token for r in parts for token in r.token_ids] == continuation(PROMPT, 40)[17:]
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
        async for _ in generation.parts():
            await asyncio.sleep(0.2)
        value = b.pair.metrics.registry.get_sample_value
        assert value("specpair_inter_token_latency_seconds_count") == 9
        spent = value("specpair_inter_token_latency_seconds_sum")
        assert spent is not None and 0 < spent < 0.2


@pytest.mark.parametrize(
    ("changes", "repeats"),
    [
        ({}, False),
        ({"num_speculative_tokens": 4}, True),
        ({"rule": Rule.COUPLED}, True),
        ({"sampling": SamplingOptions(seed=7, temperature=0.0)}, True),
    ],
)
async def test_where_the_seed_repeats_nothing_nobody_else_draws_with_it(
    changes: dict[str, object], repeats: bool
) -> None:
    async with bench() as b:
        given = {"num_speculative_tokens": None, "sampling": SamplingOptions(seed=7), **changes}
        await collect(b.generation(**given))
        await collect(b.generation(**given))
        for peer in (b.target, b.draft):
            seeds = {options.sampling.seed for options in peer.options}
            assert seeds == {7} if repeats else (7 not in seeds and len(seeds) == len(peer.options)), (peer, seeds)
        assert {o.sampling.seed for o in b.draft.options} <= {o.sampling.seed for o in b.target.options}
