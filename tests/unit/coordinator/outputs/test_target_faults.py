"""A target that fails costs time: the tokens stay its own."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.deadline import Deadline
from coordinator.outputs.generation import Generation
from coordinator.peers import target_session
from specpair.errors import (
    CapacityExhaustedError,
    ForwardFailedError,
    PeerUnavailableError,
    SequenceNotFoundError,
    StaleStepError,
    VocabularyMismatchError,
)
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.fake_peers import FakeTarget
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import (
    AWAY,
    CONFIG,
    PROMPT,
    bench,
    collect,
    request,
    until,
)

OUT_OF_TIME = PeerUnavailableError("no answer", timeout=0.05)


async def test_a_lost_target_is_opened_again_and_asked_the_same_step() -> None:
    async with bench() as b:
        parts = b.generation().parts()
        for _ in range(3):
            await anext(parts)
        b.target.restart()
        async for _ in parts:
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
        parts = b.generation().parts()
        await anext(parts)
        b.target.restart()
        b.target.model = model_info("other", vocab_size=50)
        with pytest.raises(VocabularyMismatchError):
            await anext(parts)
        await b.check_closed()


async def test_a_full_target_refuses_at_once() -> None:
    async with bench() as b:
        b.target.open_faults.before = {0: CapacityExhaustedError("full")}
        with pytest.raises(CapacityExhaustedError):
            await collect(b.generation())
        await b.check_closed()


async def test_a_late_call_to_an_earlier_opening_finds_nothing() -> None:
    """It would be taken for the next step, behind tokens that another target may have decided otherwise."""
    async with bench(target_count=2, config=replace(CONFIG, target_timeout=20.0)) as b:
        generation = b.generation(count=0)
        parts = generation.parts()
        for _ in range(3):
            await anext(parts)
        first = next(target for target in b.targets if target.held)
        other = next(target for target in b.targets if target is not first)
        late = (first.names[0], first.steps[-1] + 1, len(PROMPT) + 3)
        first.faults.before = dict.fromkeys(range(first.faults.count, 10_000), AWAY)
        await anext(parts)
        await until(lambda: not first.held)  # its place there is free for others
        assert other.held
        first.faults.before = {}
        other.faults.before = dict.fromkeys(range(other.faults.count, 10_000), AWAY)
        await anext(parts)
        await until(lambda: bool(first.held) and not other.held)
        with pytest.raises(SequenceNotFoundError):
            first.locate(*late)
        await parts.aclose()
        await b.check_closed()


async def test_what_is_opened_again_takes_one_place() -> None:
    async with bench() as b:
        parts = b.generation().parts()
        for _ in range(3):
            await anext(parts)
        for peer in (b.target, b.draft):
            peer.faults.before = {peer.faults.count: StaleStepError("under way")}
        await anext(parts)
        assert [len(peer.names) for peer in (b.target, b.draft)] == [2, 2]
        assert [len(peer.held) for peer in (b.target, b.draft)] == [1, 1]
        await parts.aclose()
        await b.check_closed()


async def test_a_failed_forward_pass_is_repeated_and_one_that_always_fails_ends_the_request() -> None:
    async with bench() as b:
        b.target.faults.before = {3: ForwardFailedError(), 4: ForwardFailedError()}
        await b.run()
        b.target.faults.before = dict.fromkeys(range(b.target.faults.count + 2, 1000), ForwardFailedError())
        with pytest.raises(ForwardFailedError):
            await collect(b.generation())
        await b.check_closed()


async def test_what_a_restarted_target_has_to_read_again_gets_the_time_that_it_got_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target_session, "CALL_SECONDS", 0.05)
    async with bench(with_draft=False) as b:
        pair = replace(b.pair, config=replace(CONFIG, target_timeout=0.1))
        parts = Generation(request(), pair).parts()
        await anext(parts)
        await asyncio.sleep(0.1 + len(PROMPT) / target_session.LEAST_TOKENS_PER_SECOND)
        b.target.restart()
        b.target.delay = 100.0
        asyncio.get_running_loop().call_later(0.25, setattr, b.target, "delay", 0.0)
        await anext(parts)
        assert b.pair.target.links["target:1"].breaker.is_closed
        await parts.aclose()


async def test_what_the_encoder_reads_takes_time_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of the decoder alone, three here, would be given 0.4 s."""
    monkeypatch.setattr(target_session, "CALL_SECONDS", 0.05)
    async with bench(with_draft=False) as b:
        pair = replace(b.pair, config=replace(CONFIG, target_timeout=0.1))
        b.target.delay = 100.0
        asyncio.get_running_loop().call_later(1.0, setattr, b.target, "delay", 0.0)
        parts = Generation(replace(request(), encoder_ids=(5,) * 600), pair).parts()
        await anext(parts)
        assert b.pair.target.links["target:1"].breaker.is_closed
        await parts.aclose()


async def test_calls_that_end_before_their_time_are_not_repeated_without_a_pause() -> None:
    async with bench(with_draft=False) as b:
        parts = b.generation().parts()
        await anext(parts)
        b.target.faults.before = dict.fromkeys(range(100_000), OUT_OF_TIME)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(parts)
        assert b.target.faults.count < 700, "at most one a millisecond, by the first delay of these tests"


async def test_a_clients_deadline_is_the_patience_of_its_request() -> None:
    async with bench() as b:
        b.target.faults.before = dict.fromkeys(range(2, 10_000), AWAY)
        generation = Generation(b.generation().request, b.pair, deadline=Deadline.after(0.1))
        with pytest.raises(PeerUnavailableError, match=r"could not be reached within 0\.\d"):
            await collect(generation)
        assert generation.output.token_ids, "what it has stays"


async def test_sequences_are_closed_once_the_peer_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        parts = b.generation().parts()
        await anext(parts)
        close, is_away = FakeTarget.close_sequence, True

        async def close_if_there(self: FakeTarget, sequence_id: str, within: float) -> None:
            if is_away:
                raise AWAY
            await close(self, sequence_id, within)

        monkeypatch.setattr(FakeTarget, "close_sequence", close_if_there)
        b.target.say_health(is_serving=False)
        await parts.aclose()
        await asyncio.sleep(0.02)
        assert b.target.held
        is_away = False
        b.target.say_health(is_serving=True)
        await until(lambda: not b.target.held)
        await b.check_closed()


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
