"""A service as a process: signals, failures at the start, a peer that stands still."""

import asyncio
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from specpair.client.channel import proposal_caller
from specpair.errors import PeerUnavailableError
from specpair.v1 import draft_service_pb2 as pb
from tests.service.rpc_servers import answer_after_recovery, channel_to, draft_server

ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0


@asynccontextmanager
async def fake_draft(mode: str = "serve", port: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "tests.service.fake_draft_process", str(port), mode]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def port_of(process: asyncio.subprocess.Process) -> int:
    """The port that the process says it listens on."""
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT):
        async for line in process.stderr:
            if match := re.search(r"fake draft listening on 127\.0\.0\.1:(\d+)", line.decode()):
                return int(match[1])
    raise AssertionError("the process ended before it listened")


async def end_of(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    """Exit status, standard output, standard error."""
    async with asyncio.timeout(TIMEOUT):
        output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_process_cleanly(number: signal.Signals) -> None:
    async with fake_draft() as process, channel_to(await port_of(process)) as channel:
        caller = proposal_caller(channel)
        assert (await caller.call(pb.ProposeTokensRequest(step=4), TIMEOUT)).step == 4
        process.send_signal(number)
        status, output, errors = await end_of(process)
        await caller.close()
    assert (status, output) == (0, "cleaned up\n")
    assert "fake draft stopped" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("mode", ["hang", "block"])
async def test_shutdown_that_hangs_is_ended_by_the_watchdog(mode: str) -> None:
    async with fake_draft(mode) as process:
        await port_of(process)
        process.terminate()
        status, output, errors = await end_of(process)
    assert (status, output) == (1, "")
    assert "did not stop within 0.4 s" in errors


async def test_a_start_that_nothing_interrupts_is_not_waited_for_as_calls_are() -> None:
    async with fake_draft("load") as process:
        assert process.stdout is not None and await process.stdout.readline() == b"loading\n"
        process.terminate()
        status, _, errors = await end_of(process)
    assert status == 1
    assert "did not stop within 0.3 s" in errors


async def test_second_signal_ends_the_process_at_once() -> None:
    async with fake_draft("hang") as process:
        await port_of(process)
        process.terminate()
        await asyncio.sleep(0.1)
        process.terminate()
        status, _, errors = await end_of(process)
    assert status == 1
    assert "second signal" in errors


async def test_taken_port_is_one_clear_line() -> None:
    async with draft_server() as (_, port), fake_draft(port=port) as process:
        status, _, errors = await end_of(process)
    assert status == 1
    assert f"fake draft cannot start: cannot listen on 127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


async def test_refused_model_is_one_clear_line() -> None:
    async with fake_draft("refuse") as process:
        status, _, errors = await end_of(process)
    assert status == 1
    assert "fake draft cannot start: the model has recurrent state" in errors
    assert "Traceback" not in errors


async def test_peer_that_stands_still_is_noticed_before_the_call_is_out_of_time() -> None:
    async with fake_draft() as process, channel_to(await port_of(process)) as channel:
        caller = proposal_caller(channel)
        await caller.call(pb.ProposeTokensRequest(step=1), TIMEOUT)
        process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(PeerUnavailableError, match="stream broke"):
            await caller.call(pb.ProposeTokensRequest(step=2), 120)
        assert time.monotonic() - start < 60
        process.send_signal(signal.SIGCONT)
        assert (await answer_after_recovery(caller, pb.ProposeTokensRequest(step=3))).step == 3
        await caller.close()


async def test_a_peer_that_stands_still_for_a_moment_keeps_its_stream() -> None:
    """As on a machine with too much to do: a second or two without an answer to a ping says nothing."""
    async with fake_draft() as process, channel_to(await port_of(process)) as channel:
        caller = proposal_caller(channel)
        await caller.call(pb.ProposeTokensRequest(step=1), TIMEOUT)
        process.send_signal(signal.SIGSTOP)
        call = asyncio.create_task(caller.call(pb.ProposeTokensRequest(step=2), TIMEOUT))
        await asyncio.sleep(2.2)  # longer than a ping's interval and a second
        process.send_signal(signal.SIGCONT)
        assert (await call).step == 2
        await caller.close()


async def test_idle_stream_with_frequent_pings_is_left_alone() -> None:
    async with fake_draft() as process, channel_to(await port_of(process)) as channel:
        caller = proposal_caller(channel)
        await caller.call(pb.ProposeTokensRequest(step=1), TIMEOUT)
        stream = caller._stream
        await asyncio.sleep(4)
        await caller.call(pb.ProposeTokensRequest(step=2), TIMEOUT)
        assert caller._stream is stream
        await caller.close()
