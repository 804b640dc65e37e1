"""Before each turn a service may give works more tokens for their next pass, and ask the device thread for anything."""

import asyncio
from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.engine.device_thread import DeviceThread
from specpair.engine.engine import Engine
from specpair.engine.work import Work
from specpair.errors import ShuttingDownError
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_pacing import FlatRunner


async def test_works_are_made_ready_before_every_pass() -> None:
    fed: list[list[int]] = []

    def ready(works: list[Work]) -> None:
        for work in works:
            work.sequence.tokens.append(7)
            work.row_count = 2

    def advance(works: list[Work], logits: Tensor) -> None:
        (work,) = works
        assert logits.shape[0] == work.row_count == 2
        fed.append(list(work.sequence.tokens))
        work.done = len(fed) == 3
        work.sequence.tokens.append(1)

    engine = Engine(DeviceThread(), FlatRunner(), advance, token_budget=64, short=6, ready=ready)
    engine.start()
    await engine.run(Work(sequence=Sequence([5]), row_count=1))
    assert fed == [[5, 7], [5, 7, 1, 7], [5, 7, 1, 7, 1, 7]]
    await engine.stop()


async def test_what_the_device_thread_is_asked_is_answered_or_raised() -> None:
    engine = Engine(DeviceThread(), FlatRunner(), lambda works, logits: None, token_budget=64, short=6)
    engine.start()
    assert await engine.call(lambda: torch.is_inference_mode_enabled())
    with pytest.raises(ZeroDivisionError):
        await engine.call(lambda: 1 // 0)
    assert await engine.call(lambda: "still here") == "still here"
    await engine.stop()


async def test_a_caller_may_give_up_before_the_device_thread_answers() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    engine = Engine(DeviceThread(), FlatRunner(), lambda works, logits: None, token_budget=64, short=6)
    engine.start()
    for function in (lambda: 1, lambda: 1 // 0):
        call = asyncio.ensure_future(engine.call(function))
        await asyncio.sleep(0)
        call.cancel()
        assert await engine.call(lambda: 2) == 2
    await engine.stop()
    assert not complaints


async def test_no_call_waits_for_a_thread_that_has_ended() -> None:
    def end() -> None:
        raise SystemExit

    engine = Engine(DeviceThread(), FlatRunner(), lambda works, logits: None, token_budget=64, short=6)
    calls = [asyncio.ensure_future(engine.call(function)) for function in (end, lambda: 1)]
    await asyncio.sleep(0)
    engine.start()
    await engine.stop()
    calls.append(asyncio.ensure_future(engine.call(lambda: 1)))
    found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert all(isinstance(error, ShuttingDownError) for error in found)
