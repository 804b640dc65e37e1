"""What the target is told of the next call, and that this call then comes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive import Decision, OutputLength
from coordinator.peers import NO_ORDER, backoff
from specpair.errors import NotSupportedError
from specpair.options import Rule, SamplingOptions
from specpair.rpc.retry import RetryPolicy
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, Bench, bench, collect


def check_kept(b: Bench, *, opened: int = 1) -> None:
    """No call was another one than promised: the sequence would have been opened again."""
    assert len(b.target.opened) == opened
    assert b.target.gone_on_count == len(b.target.promises) - b.target.promises.count(None)


@pytest.mark.parametrize("with_draft", [False, True])
async def test_every_plain_call_but_the_last_is_promised(with_draft: bool) -> None:
    async with bench(with_draft=with_draft) as b:
        await b.run(max_tokens=20, count=0)
        assert b.target.promises == [NO_ORDER] * 19 + [None]
        check_kept(b)


async def test_a_call_that_a_proposal_follows_promises_nothing() -> None:
    async with bench() as b:
        await b.run(count=3)
        assert not b.target.gone_on_count


async def test_an_adaptive_output_promises_its_plain_rounds_and_keeps_that() -> None:
    """The fake pair takes no time, so its rounds may or may not have proposals; both are there in the end."""
    async with bench() as b:
        for _ in range(6):
            await b.run(max_tokens=120, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert b.target.gone_on_count and b.draft.counts
        check_kept(b, opened=6)


PROBE = 5
"""The round in which an output with a draft decides to probe. It was promised to be plain, so the next one does."""


@pytest.fixture
def one_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adaptive outputs make one probe."""
    ready = list[bool]()

    def choose(self: OutputLength, longest: int, *, is_ready: bool, is_due: bool, may_probe: bool) -> Decision:
        ready.append(is_ready)
        is_probe = is_ready and (is_due or ready.count(True) == PROBE)
        return Decision(1, is_probe=True) if is_probe else Decision(0, opens_draft=not is_ready)

    monkeypatch.setattr(OutputLength, "_choose", choose)


@pytest.mark.usefixtures("one_probe")
async def test_the_plain_round_after_a_probe_is_promised_with_it() -> None:
    """So the target goes on after it, and a probe costs no pass more than its own."""
    async with bench() as b:
        await b.run(max_tokens=20, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert b.draft.counts == [1]
        assert b.target.promises.count(None) == 3, "of the first call, the one before the probe, and the last"
        check_kept(b)


@pytest.mark.usefixtures("one_probe")
async def test_it_is_kept_if_the_draft_fails() -> None:
    async with bench() as b:
        b.draft.faults.before = {0: AWAY}
        generation = await b.run(max_tokens=20, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert generation.acceptance.fallback_count == 1
        check_kept(b)


@pytest.mark.usefixtures("one_probe")
async def test_it_is_kept_if_the_target_refuses_the_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is judged once more, without it."""
    refused = list[int]()

    async def verify(
        sequence_id: str, step: int, length: int, proposal: Proposal | None, *args: Any, **more: Any
    ) -> Any:
        if proposal is not None:
            refused.append(step)
            raise NotSupportedError("proposals of this kind")
        return await judge(sequence_id, step, length, proposal, *args, **more)

    async with bench() as b:
        judge = b.target.verify
        monkeypatch.setattr(b.target, "verify", verify)
        await b.run(max_tokens=20, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert len(refused) == 1
        check_kept(b)


@pytest.mark.parametrize(("count", "expected"), [(0, {1}), (3, {0})])
async def test_the_load_knows_who_waits_for_nobody(count: int, expected: set[int]) -> None:
    async with bench() as b:
        load, seen = b.pair.lengths.load, list[int]()
        async for _ in b.generation(max_tokens=20, count=count).parts():
            seen.append(load.promised_count)
        assert set(seen[2:-2]) == expected and load.promised_count == 0
        await b.check_closed()


async def test_nothing_is_promised_before_the_other_outputs_are_forked() -> None:
    async with bench() as b:
        b.target.delay, b.target.fork_delay = 0.002, 0.01
        choices = b.choices(max_tokens=12, count=0, n=3, best_of=3)
        async for _ in choices.parts():
            pass
        await b.check_closed()
        assert b.target.forked == [len(PROMPT)] * 2 and len(b.target.opened) == 1
        assert b.target.promises[0] is None and b.target.gone_on_count


async def test_an_output_that_stops_leaves_what_was_begun() -> None:
    tokens = continuation(PROMPT, 30)
    stop = tokens[12]
    async with bench() as b:
        generation = b.generation(30, 0, sampling=SamplingOptions(stop_token_ids=(stop,)))
        await collect(generation)
        assert generation.output.token_ids == tokens[: tokens.index(stop) + 1]
        assert b.target.promises.count(NO_ORDER) == len(b.target.promises)
        await b.check_closed()


FAULTS = st.dictionaries(st.integers(0, 40), st.just(AWAY), max_size=8)


@pytest.mark.slow
@given(FAULTS, FAULTS, st.sampled_from([0, None]), st.floats(0.0, 0.002))
def test_no_fault_changes_a_token_of_a_target_that_goes_on_by_itself(
    before: dict[int, Exception], after: dict[int, Exception], count: int | None, delay: float
) -> None:
    async def run() -> None:
        async with bench() as b:
            b.target.faults.before, b.target.faults.after, b.target.delay = before, after, delay
            await b.run(max_tokens=30, num_speculative_tokens=count, rule=Rule.COUPLED)
            assert b.target.steps == sorted(b.target.steps), "steps must never go back"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
        asyncio.run(run())
