"""Several outputs of one request: each as if alone, all closed at the end, whatever happens on the way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.outputs.choices import AHEAD, ChoicePart, Choices, merge
from coordinator.peers import backoff
from coordinator.serving.draining import Draining
from specpair.errors import (
    CapacityExhaustedError,
    ConflictingBodyError,
    LengthNotReachedError,
    NotFiniteError,
    PeerUnavailableError,
    SequenceNotFoundError,
    ShuttingDownError,
    SpecpairError,
    StaleStepError,
)
from specpair.options import MAX_SEED, SamplingOptions
from specpair.rpc.retry import RetryPolicy
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, bench

FORK_ERRORS = [
    AWAY,
    SequenceNotFoundError("x"),
    StaleStepError("under way"),
    LengthNotReachedError(3, 2),
    ConflictingBodyError("x"),
    CapacityExhaustedError("full"),
]


async def collect(choices: Choices, pause: float = 0.0) -> list[ChoicePart]:
    """All parts. A pause lets the draft's cool-down pass."""
    parts = []
    async for item in choices.parts():
        parts.append(item)
        await asyncio.sleep(pause)
    return parts


def outputs(parts: list[ChoicePart]) -> list[list[int]]:
    """The tokens of each output; checks that its last round is the last."""
    ended: set[int] = set()
    tokens: dict[int, list[int]] = {}
    for index, _, part in parts:
        assert index not in ended
        tokens.setdefault(index, []).extend(part.token_ids)
        ended |= {index} if part.is_last else set()
    assert ended == set(range(len(tokens)))
    return [tokens[index] for index in range(len(tokens))]


def expected(count: int, max_tokens: int = 40, seed: int = 0) -> list[list[int]]:
    return [continuation(PROMPT, max_tokens, (seed + i) % (MAX_SEED + 1)) for i in range(count)]


async def test_outputs_are_forked_from_the_first_and_come_side_by_side() -> None:
    async with bench() as b:
        parts = await collect(b.choices(n=3, best_of=3))
        assert outputs(parts) == expected(3)
        assert {item.choice_index for item in parts[:6]} == {0, 1, 2}
        for peer in (b.target, b.draft):
            assert [tokens for tokens, _ in peer.opened] == [list(PROMPT)]
            assert peer.forked == [len(PROMPT)] * 2
        await b.check_closed()


@pytest.mark.parametrize("count", [0, 4])
async def test_a_sequence_is_not_forked_in_the_middle_of_a_call(count: int) -> None:
    """Its process would refuse that."""
    async with bench() as b:
        for peer in (b.target, b.draft):
            peer.delay, peer.fork_delay = 0.01, 0.005
        assert outputs(await collect(b.choices(6, count, n=3, best_of=3))) == expected(3, 6)
        assert b.target.forked == [len(PROMPT)] * 2
        assert b.draft.forked == [len(PROMPT)] * (2 if count else 0)
        await b.check_closed()


async def test_seeds_begin_again_behind_the_last() -> None:
    async with bench() as b:
        parts = await collect(b.choices(n=3, best_of=3, sampling=SamplingOptions(seed=MAX_SEED - 1)))
        assert outputs(parts) == expected(3, seed=MAX_SEED - 1)
        seeds = {item.choice_index: item.generation.request.sampling.seed for item in parts}
        assert seeds == {0: MAX_SEED - 1, 1: MAX_SEED, 2: 0}


async def test_a_single_output_is_not_forked() -> None:
    async with bench() as b:
        assert outputs(await collect(b.choices())) == expected(1)
        assert not b.target.forked and not b.draft.forked
        await b.check_closed()


@pytest.mark.parametrize("error", FORK_ERRORS)
@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_what_cannot_be_forked_is_opened(error: SpecpairError, is_carried_out: bool) -> None:
    async with bench() as b:
        for peer in (b.target, b.draft):
            faults: dict[int, Exception] = {0: error}
            peer.fork_faults.before, peer.fork_faults.after = ({}, faults) if is_carried_out else (faults, {})
        parts = await collect(b.choices(n=3, best_of=3), pause=0.002)
        assert outputs(parts) == expected(3)
        assert len(b.target.opened) == len(b.draft.opened) == 2
        assert all(item.generation.acceptance.accepted_token_count > 5 for item in parts)
        await b.check_closed()


async def test_a_restart_in_the_middle_costs_no_token_of_any_output() -> None:
    async with bench() as b:
        parts = []
        async for item in b.choices(n=3, best_of=3).parts():
            parts.append(item)
            if len(parts) == 7:
                b.target.restart()
        assert outputs(parts) == expected(3)
        await b.check_closed()


async def test_outputs_of_one_token_need_no_second_round() -> None:
    async with bench() as b:
        assert outputs(await collect(b.choices(1, n=4, best_of=4))) == expected(4, 1)
        assert len(b.target.opened) == 1
        await b.check_closed()


async def test_one_that_fails_ends_them_all() -> None:
    async with bench() as b:
        b.target.faults.before = {9: NotFiniteError()}
        with pytest.raises(NotFiniteError):
            await collect(b.choices(n=3, best_of=3))
        asked = b.target.faults.count
        await b.check_closed()
        assert b.target.faults.count == asked


async def test_a_first_that_fails_does_not_leave_the_others_waiting() -> None:
    async with bench() as b:
        b.target.faults.before = {0: NotFiniteError()}
        async with asyncio.timeout(2.0):
            with pytest.raises(NotFiniteError):
                await collect(b.choices(n=3, best_of=3))
        await b.check_closed()


@pytest.mark.parametrize("round_count", [0, 1, 2, 5])
@pytest.mark.parametrize("best_of", [3, 4])
async def test_all_sequences_are_closed_when_the_client_goes_away(round_count: int, best_of: int) -> None:
    async with bench() as b:
        parts = b.choices(n=3, best_of=best_of).parts()
        for _ in range(round_count):
            await anext(parts)
        await parts.aclose()
        await b.check_closed()


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03])
async def test_all_sequences_are_closed_when_the_task_is_cancelled(seconds: float) -> None:
    async with bench() as b:
        b.draft.delay, b.target.delay = 0.02, 0.01
        task = asyncio.create_task(collect(b.choices(150, n=3, best_of=3)))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await b.check_closed()


async def test_the_best_come_last_of_all_and_best_first() -> None:
    async with bench() as b:
        choices = b.choices(10, n=2, best_of=4)
        parts = choices.parts()
        first = await anext(parts)
        assert [generation.output.finish_reason for generation in choices.generations] == ["length"] * 4
        collected = [first, *[item async for item in parts]]
        order = sorted(choices.generations, key=lambda generation: -generation.mean_logprob)
        assert len({generation.mean_logprob for generation in order}) == 4
        assert outputs(collected) == [generation.output.token_ids for generation in order[:2]]
        assert [item.choice_index for item in collected] == sorted(item.choice_index for item in collected)
        await b.check_closed()


DRAFT_ERRORS = st.sampled_from([*FORK_ERRORS, NotFiniteError()])
TARGET_ERRORS = st.sampled_from(FORK_ERRORS)


@given(
    st.dictionaries(st.integers(0, 3), TARGET_ERRORS),
    st.dictionaries(st.integers(0, 3), TARGET_ERRORS),
    st.dictionaries(st.integers(0, 3), DRAFT_ERRORS),
    st.dictionaries(st.integers(0, 40), DRAFT_ERRORS, max_size=8),
    st.dictionaries(st.integers(0, 60), st.just(AWAY), max_size=6),
)
def test_no_schedule_of_faults_changes_a_token(
    target_before: dict[int, Exception],
    target_after: dict[int, Exception],
    draft_forks: dict[int, Exception],
    proposals: dict[int, Exception],
    verdicts: dict[int, Exception],
) -> None:
    async def run() -> None:
        async with bench() as b:
            b.target.fork_faults.before, b.target.fork_faults.after = target_before, target_after
            b.draft.fork_faults.before, b.draft.faults.before = draft_forks, proposals
            b.target.faults.after = verdicts
            assert outputs(await collect(b.choices(20, n=3, best_of=3))) == expected(3, 20)
            await b.check_closed()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
        asyncio.run(run())


class Source:
    """Counts what it was asked for and notes its end."""

    def __init__(self, length: int, error_at: int | None = None):
        self.length = length
        self.error_at = error_at
        self.asked = 0
        self.is_closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for i in range(self.length):
                self.asked += 1
                await asyncio.sleep(0)
                if i == self.error_at:
                    raise PeerUnavailableError("gone")
                yield i
        finally:
            self.is_closed = True


@pytest.mark.parametrize("count", [1, 3])
async def test_a_source_runs_ahead_of_what_was_taken_but_not_far(count: int) -> None:
    sources = [Source(100) for _ in range(count)]
    async with aclosing(merge([source.items() for source in sources])) as merged:
        for taken in range(1, 10):
            await anext(merged)
            await asyncio.sleep(0.005)
            asked = sum(source.asked for source in sources)
            assert asked == taken + (AHEAD + 1) * count
    assert all(source.is_closed for source in sources)


async def test_what_is_ready_is_given_though_no_wait_is_allowed_any_more() -> None:
    """As after the grace time of a process: a client that reads slowly gets what was generated for it."""
    draining, taken = Draining(), list[int]()
    async with aclosing(merge([Source(100).items()])) as merged:
        with pytest.raises(ShuttingDownError):
            while True:
                taken.append((await draining.unless_over(anext(merged)))[1])
                if len(taken) == 3:
                    await asyncio.sleep(0.005)
                    draining.end()
    assert taken[: 3 + AHEAD] == list(range(3 + AHEAD))


async def test_merging_keeps_the_order_of_each_source_and_waits_for_the_longest() -> None:
    items = [item async for item in merge([Source(length).items() for length in (1, 4, 0, 2)])]
    assert [[value for index, value in items if index == i] for i in range(4)] == [[0], [0, 1, 2, 3], [], [0, 1]]


async def test_an_error_of_one_source_closes_all() -> None:
    sources = [Source(100), Source(100, error_at=3), Source(100)]
    taken = []
    with pytest.raises(PeerUnavailableError):
        async for index, item in merge([source.items() for source in sources]):
            taken.append((index, item))
    assert all(source.is_closed for source in sources)
    assert [item for index, item in taken if index == 1] == [0, 1, 2], "what came before the error is not lost"


async def test_a_source_that_is_cancelled_from_below_ends_with_an_error() -> None:
    """As grpc.aio does with the calls on a channel that is closed."""

    async def items() -> AsyncGenerator[int, None]:
        yield 0
        raise asyncio.CancelledError

    async with asyncio.timeout(2.0):
        with pytest.raises(PeerUnavailableError):
            async for _ in merge([items(), Source(100).items()]):
                pass
