"""A server of somebody else as a process of ours, on the loopback interface."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

import httpx

from command.pair.child import POLL_SECONDS, Child
from command.pair.local_pair import LOOPBACK, ignore_line

ANSWER_SECONDS = 60.0


class HttpServer(Child):
    """One that says at `/health` whether it is ready. Made by `begin`. What it started ends with it."""

    _ending: asyncio.Task[None]

    @classmethod
    async def begin(cls, name: str, command: Sequence[str], port: int, environment: Mapping[str, str]) -> Self:
        """Starts the command, which does not outlive this process; it is to listen at `port`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.bound_program",
            str(os.getpid()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C goes to us alone, and we stop the servers
        )
        server = cls(name, f"{LOOPBACK}:{port}", process, ignore_line)
        server._ending = asyncio.create_task(end_group_after(process))
        return server

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def wait_until_ready(self) -> float:
        """Until the model is loaded and warm; returns the seconds since the start."""
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_SECONDS) as client:
            while not await is_healthy(client):  # noqa: ASYNC110 - another process cannot set an Event of ours
                await asyncio.sleep(POLL_SECONDS)
        self.start_seconds = time.monotonic() - self._started
        return self.start_seconds


async def end_group_after(process: asyncio.subprocess.Process) -> None:
    """Once a process has ended, ends those that it has started: they hold its standard output open, which is read to
    the end, and `wait` waits for that."""
    while process.returncode is None:  # noqa: ASYNC110 - no event comes before its output is closed
        await asyncio.sleep(POLL_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False
