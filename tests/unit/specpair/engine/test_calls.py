"""Functions that are called on the device thread between passes."""

from typing import Any

import pytest
import torch

from specpair.engine.failures import check_device
from specpair.errors import ShuttingDownError
from tests.unit.specpair.engine.test_background import Recorder, make_cache, started


async def test_an_error_is_raised_to_the_caller_alone() -> None:
    engine = await started(Recorder(make_cache("paged", 64)))
    with pytest.raises(ZeroDivisionError):
        await engine.call(lambda: 1 // 0)
    assert await engine.call(lambda: 5) == 5
    await engine.stop()


async def test_a_device_that_is_lost_ends_the_thread_and_refuses_the_call() -> None:
    """As in a pass: only a new process helps."""
    engine = await started(Recorder(make_cache("paged", 64)))

    def lose() -> Any:
        try:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        except Exception as error:
            check_device(error)
            raise

    with pytest.raises(ShuttingDownError):
        await engine.call(lose)
    assert await engine.broken
    with pytest.raises(ShuttingDownError):
        await engine.call(lambda: 5)
