"""The device thread, and that no other thread of a service has a pool of OpenMP threads."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specpair.engine import host as hosting
from specpair.engine.device_thread import DeviceThread
from specpair.engine_config import EngineConfig
from specpair.models.model_facts import ModelFacts
from specpair.models.runner import Runner
from target_service.verifier import Verifier
from tests.services import engine_config

ROOT = Path(__file__).parents[4]
SERVE = """
import asyncio, os, sys, threading
import torch

from specpair.engine_config import EngineConfig
from target_service.verifier import Verifier

LARGE = torch.ones(1 << 20)

def native_threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()

async def main():
    before = native_threads()
    verifier = await Verifier.start(EngineConfig(model="models/bundled/target", threads=2))
    await verifier.score(list(range(1, 60)), 0)
    in_pool = native_threads() - before
    LARGE.sin()
    await asyncio.gather(*(asyncio.to_thread(LARGE.sin) for _ in range(4)))
    in_all = native_threads() - before
    shared = []
    verifier.engine.ask(lambda: shared.append(torch.get_num_threads()))
    await verifier.stop()
    print(*shared, in_pool, in_all)

asyncio.run(main())
"""


async def test_functions_run_in_turn_on_one_thread_that_ends() -> None:
    device = DeviceThread()
    threads = [await device.call(threading.current_thread) for _ in range(2)]
    assert threads[0] is threads[1] is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await device.call(lambda: 1 // 0)
    last: list[threading.Thread] = []
    device.run_last(lambda: last.append(threading.current_thread()))
    await device.join()
    assert last == threads[:1] and not threads[0].is_alive()


async def test_a_caller_that_left_does_not_end_the_thread() -> None:
    device, go = DeviceThread(), threading.Event()
    call = asyncio.ensure_future(device.call(go.wait))
    await asyncio.sleep(0)
    call.cancel()
    go.set()
    assert await device.call(lambda: 5) == 5
    device.end()
    await device.join()


async def test_a_stop_while_the_model_loads_waits_for_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while torch computes on a daemon thread aborts."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def load(config: EngineConfig) -> None:
        begun.set()
        go.wait()
        ended.set()

    monkeypatch.setattr(hosting, "load_runner", load)
    start = asyncio.ensure_future(Verifier.start(EngineConfig(model="any")))
    await asyncio.to_thread(begun.wait)
    start.cancel()
    await asyncio.sleep(0.05)
    assert not start.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert ended.is_set()


class Unfinished(Verifier):
    """Fails when everything else is made."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: Runner, device: DeviceThread):
        super().__init__(config, facts, runner, device)
        raise ValueError("no room")


async def test_a_host_that_cannot_be_made_leaves_no_thread() -> None:
    before = threading.enumerate()
    with pytest.raises(ValueError, match="no room"):
        await Unfinished.start(engine_config(ROOT / "models" / "bundled" / "draft"))
    assert [thread for thread in threading.enumerate() if thread.name == "device" and thread not in before] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_only_the_device_thread_shares_operators_among_threads() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SERVE], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    shared, in_pool, in_all = map(int, done.stdout.split())
    assert shared == 2, "the device thread may use both"
    assert in_pool == 2, (
        "one that OpenMP added for the device thread, and one of XNNPACK, which torch starts and leaves"
    )
    assert in_all == in_pool, "the event loop and the threads beside it compute alone"
