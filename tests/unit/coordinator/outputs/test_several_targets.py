"""An output goes from one target to another, and loses no token."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.outputs.generation import Generation
from coordinator.peers import target_session
from coordinator.peers.recovery import Recovery
from specpair.errors import (
    CapacityExhaustedError,
    PeerUnavailableError,
    ShuttingDownError,
)
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import (
    AWAY,
    CONFIG,
    PROMPT,
    bench,
    collect,
    request,
    until,
)


async def test_a_request_moves_to_another_target_and_loses_no_token() -> None:
    async with bench(target_count=2) as b:
        generation = b.generation()
        parts = generation.parts()
        for _ in range(3):
            await anext(parts)
        first = next(target for target in b.targets if target.held)
        other = next(target for target in b.targets if target is not first)
        first.faults.after = dict.fromkeys(range(1000), AWAY)
        async for _ in parts:
            pass
        assert generation.output.token_ids == continuation(PROMPT, 40)
        assert len(other.opened) == 1 and other.opened[0][1] == len(PROMPT)
        assert b.pair.target.recoveries == {Recovery.REPEATED: 0, Recovery.REOPENED: 0, Recovery.MOVED: 1}
        assert other.steps[0] == first.steps[-1], "the lost step is judged again with its own noise"
        first.faults.before = {}
        await b.check_closed()


async def test_a_target_that_drains_is_left_before_it_ends() -> None:
    async with bench(target_count=2) as b:
        parts = b.generation().parts()
        await anext(parts)
        first = next(target for target in b.targets if target.held)
        first.say_health(is_serving=False)
        first.faults.before = dict.fromkeys(range(1000), ShuttingDownError())
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        assert first.faults.count == 2, "the first token, and one call that was refused"


async def test_new_sequences_go_to_the_least_loaded_target_that_serves() -> None:
    async with bench(target_count=3) as b:
        b.targets[1].say_health(is_serving=False)
        outputs = [b.generation(prompt_ids=(i, 1, 2)).parts() for i in range(12)]
        for parts in outputs:
            await anext(parts)
        assert len(b.targets[1].opened) == 0
        assert {len(b.targets[0].opened), len(b.targets[2].opened)} <= {5, 6, 7}
        for parts in outputs:
            await parts.aclose()
        await b.check_closed()


async def test_a_full_target_sends_new_sequences_to_another() -> None:
    async with bench(target_count=2) as b:
        for target in b.targets:
            target.open_faults.before = {0: CapacityExhaustedError("full")}
        with pytest.raises(CapacityExhaustedError):
            await collect(b.generation())
        b.targets[0].open_faults.before = dict.fromkeys(range(1000), CapacityExhaustedError("full"))
        await b.run()


async def test_two_targets_that_hang_though_they_say_they_serve_end_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_session, "CALL_SECONDS", 0.05)
    async with bench(target_count=2, with_draft=False) as b:
        pair = replace(b.pair, config=replace(CONFIG, target_timeout=0.15))
        parts = Generation(request(), pair).parts()
        await anext(parts)
        for target in b.targets:
            target.delay = 100.0
        async with asyncio.timeout(20.0):
            with pytest.raises(PeerUnavailableError):
                await anext(parts)
        await b.check_closed()


async def test_a_target_that_came_back_is_gone_to_before_it_has_answered_anything() -> None:
    async with bench(target_count=2) as b:
        links = b.pair.target.links
        links["target:2"].fail(AWAY)
        b.targets[1].say_health(is_serving=False)
        await until(lambda: not links["target:2"].is_there)
        parts = b.generation().parts()
        await anext(parts)
        assert b.targets[0].held
        b.targets[1].say_health(is_serving=True)
        await until(lambda: links["target:2"].is_there)
        b.targets[0].faults.before = dict.fromkeys(range(1000), AWAY)
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        assert b.targets[1].opened


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
        parts = b.generation().parts()
        await anext(parts)
        hung = next(target for target in b.targets if target.held)
        hung.delay = 100.0
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        other = next(target for target in b.targets if target is not hung)
        assert b.pair.target.links[other.address].breaker.is_closed


async def test_a_target_that_was_let_go_is_left() -> None:
    async with bench(target_count=2) as b:
        parts = b.generation().parts()
        await anext(parts)
        held = next(target for target in b.targets if target.held)
        held.faults.before = dict.fromkeys(range(1000), ShuttingDownError())
        b.pair.target.links[held.address].release()
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]


async def test_a_target_that_comes_back_for_shorter_texts_is_left() -> None:
    async with bench(target_count=2) as b:
        parts = b.generation().parts()
        await anext(parts)
        first = next(target for target in b.targets if target.held)
        first.restart()
        first.model = replace(first.model, max_model_len=20)
        generated = [token for r in [r async for r in parts] for token in r.token_ids]
        assert generated == continuation(PROMPT, 40)[1:]
        await b.check_closed()


async def test_a_request_waits_for_a_target_that_bears_it() -> None:
    async with bench() as b:
        parts = b.generation().parts()
        await anext(parts)
        (link,) = b.pair.target.links.values()
        b.target.restart()
        b.target.model = replace(b.target.model, max_model_len=20)
        rest = asyncio.create_task(anext(parts))
        await until(lambda: link.info is not None and link.info.max_model_len == 20)
        await asyncio.sleep(0.05)
        assert not rest.done()
        b.target.restart()
        b.target.model = replace(b.target.model, max_model_len=200)
        await link.check()
        generated = [*(await rest).token_ids, *[token for r in [r async for r in parts] for token in r.token_ids]]
        assert generated == continuation(PROMPT, 40)[1:]
        await b.check_closed()
