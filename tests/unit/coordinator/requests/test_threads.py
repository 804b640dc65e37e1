"""Work on long texts keeps its caller's place until it is done."""

import asyncio
import threading
import time

import pytest

from coordinator.requests.threads import in_thread


async def test_the_result_or_the_error_of_the_function() -> None:
    assert await in_thread(int, "12", base=8) == 10
    with pytest.raises(ValueError, match="invalid literal"):
        await in_thread(int, "x")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_caller_that_is_cancelled_goes_when_the_function_has_returned(fails: bool) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.2)
        ended.set()
        if fails:
            raise ValueError

    calling = asyncio.create_task(in_thread(work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ended.is_set()
