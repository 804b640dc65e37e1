"""A service as a child process: its log, its health and its exit."""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import specpair
from command.failures import CommandError
from specpair.client.channel import connect
from specpair.server.server import WATCHDOG_MARGIN_SECONDS, process_service

KEPT_LINES = 15
POLL_SECONDS = 0.1
STOP_SECONDS = WATCHDOG_MARGIN_SECONDS + 2.0
"""After its grace time a watchdog ends a service; a child that outlasts both is killed."""
NOT_HANDED_ON = ("SPECPAIR_TLS_", "SPECPAIR_TOKEN", "SPECPAIR_INSECURE", "SPECPAIR_PEER_", "SPECPAIR_CONFIG")
"""Prefixes of the variables that set how a service is protected or reached, and of the one that names a file of flags,
which may do the same."""

OnLine = Callable[[str, str], None]


class ServiceEndedError(CommandError):
    """A service ended, or could not be started. The message has the end of its log, if there is one."""

    def __init__(self, brief: str, log: str = ""):
        super().__init__(f"{brief}; the end of its log:\n{log}" if log else brief)
        self.brief = brief
        self.log = log


class Child:
    """One running service. Made by `start`."""

    def __init__(self, name: str, address: str, process: asyncio.subprocess.Process, on_line: OnLine):
        self.name = name
        self.address = address
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = asyncio.create_task(self._read(on_line))
        self._started = time.monotonic()
        self.start_seconds = 0.0
        """From its start until it was ready; 0 before."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, name: str, address: str, arguments: list[str], on_line: OnLine) -> "Child":
        """Starts `specpair <arguments>`. `on_line` gets the name and each line of the log.

        Raises ServiceEndedError if the system has no room for another process.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "command.pair.bound_child",
                str(os.getpid()),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,  # Ctrl-C goes to us alone, and we stop the children in order
            )
        except OSError as error:
            raise ServiceEndedError(f"the {name} cannot be started: {error}") from None
        return cls(name, address, process, on_line)

    async def wait_until_ready(self) -> float:
        """Polls the health until this process serves; returns the seconds since its start.

        Another process on the same port does not know this service, or refuses the call without a token; the child then
        exits soon.
        """
        channel = connect(self.address)
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            while not await _is_serving(stub, process_service(self.pid)):  # noqa: ASYNC110 - another process cannot set an Event of ours
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await channel.close()
        self.start_seconds = time.monotonic() - self._started
        return self.start_seconds

    async def wait_until_dead(self) -> None:
        """Raises ServiceEndedError with the last lines of the log when the process ends."""
        status = await self._process.wait()
        await asyncio.shield(self._reader)  # who waits may be cancelled; `stop` still reads to the end
        log = "\n".join(f"  {line}" for line in self._last_lines) or "  (it wrote nothing)"
        raise ServiceEndedError(f"the {self.name} ended with status {status}", log)

    async def stop(self, grace_seconds: float) -> None:
        """Asks the process to end, and kills it if it does not.

        One that was never ready serves nobody, and may be in a part of its start that nothing interrupts, as where it
        asks a hub for a model again and again. It is killed at once.
        """
        if not self.start_seconds:
            self.kill()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(grace_seconds + STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._reader

    def kill(self) -> None:
        """Ends the process at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self, on_line: OnLine) -> None:
        assert self._process.stdout is not None
        while line := await _read_line(self._process.stdout):
            text = line.decode(errors="replace").rstrip()
            self._last_lines.append(text)
            on_line(self.name, text)


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """The next line, or a placeholder if it is too long."""
    try:
        return await stream.readline()
    except ValueError:
        return b"(a line too long to show)\n"


async def _is_serving(stub: Any, service: str) -> bool:
    try:
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=1.0)
    except grpc.aio.AioRpcError:
        return False
    return response.status == health_pb2.HealthCheckResponse.SERVING


def _environment() -> dict[str, str]:
    """Ours, with this package on the path. The child gets its protection only from the flags that we give it."""
    root = str(Path(specpair.__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
