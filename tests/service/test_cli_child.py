"""The services as children of `specpair up`: another's port, a parent that dies, a second signal."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from command.failures import CommandError
from command.pair.child import Child
from command.pair.local_pair import ignore_line, killing_on_signals
from tests.service.rpc_servers import draft_server

ROOT = Path(__file__).parents[2]
SERVE = ["serve", "draft", "--drafter", "ngram", "--metrics-port", "0", "--port"]
PARENT = """
import asyncio, sys
from command.pair.child import Child

async def main():
    child = await Child.start("draft", "127.0.0.1:1", sys.argv[1:], lambda name, line: print(line, flush=True))
    print(child._process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


async def test_somebody_elses_service_is_not_taken_for_the_child() -> None:
    async with draft_server() as (_, port):
        child = await Child.start("draft", f"127.0.0.1:{port}", [*SERVE, str(port)], ignore_line)
        ready = asyncio.create_task(child.wait_until_ready())
        try:
            with pytest.raises(CommandError, match=f"cannot listen on 127.0.0.1:{port}"):
                await asyncio.wait_for(child.wait_until_dead(), 60)
            assert not ready.done()
        finally:
            ready.cancel()
            await child.stop(0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
async def test_children_of_a_killed_parent_end() -> None:
    command = [sys.executable, "-c", PARENT, *SERVE, "0"]
    parent = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    async with asyncio.timeout(60):
        pid = int(await parent.stdout.readline())
        while b"listening" not in (line := await parent.stdout.readline()):
            assert line, "the child ended"
    os.kill(pid, 0)
    parent.kill()
    await parent.wait()
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline, "the child outlives its parent"
        await asyncio.sleep(0.05)


async def test_what_was_never_ready_is_stopped_at_once() -> None:
    async with stubborn_child() as child:
        await asyncio.wait_for(child.stop(600), 20)


async def test_a_second_signal_kills_what_is_stopping() -> None:
    async with stubborn_child() as child:
        child.start_seconds = 1.0  # it was ready
        stopping = asyncio.create_task(child.stop(600))
        with killing_on_signals([child]):
            await asyncio.sleep(0.2)
            assert not stopping.done()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.wait_for(stopping, 60)


@asynccontextmanager
async def stubborn_child() -> AsyncIterator[Child]:
    """One that does not care for SIGTERM."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUBBORN, stdout=asyncio.subprocess.PIPE)
    is_up = asyncio.Event()
    child = Child("draft", "127.0.0.1:1", process, lambda name, line: is_up.set())
    await is_up.wait()
    try:
        yield child
    finally:
        child.kill()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
