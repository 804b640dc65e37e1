"""One service as a process that can be stopped, killed and restarted."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.client.channel import connect
from specpair.v1 import sequence_service_pb2
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from tests.faults.nursery import fork_service

POLL_SECONDS = 0.05
END_POLL_SECONDS = 0.01
READY_SECONDS = 180.0
"""Longest start on a busy machine."""
END_SECONDS = 60.0


class InstanceError(Exception):
    """A service that does not start, or does not end."""


class Instance:
    """A service with its own address, run by one process after another."""

    def __init__(self, name: str, arguments: Sequence[str], port: int, folder: Path):
        """`arguments` are those after `specpair serve`; its log is appended to a file in `folder`."""
        self.name = name
        self.port = port
        self.log_path = folder / f"{name}.log"
        self.start_count = 0
        self._arguments = [*arguments, "--host", "127.0.0.1", "--port", str(port)]
        self._process: BaseProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None and self._process.pid is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return None if self._process is None else self._process.exitcode

    async def start(self) -> None:
        """Starts the process without waiting until it is ready."""
        self.start_count += 1
        self._process = await asyncio.to_thread(fork_service, self.name, self._arguments, self.log_path)

    async def wait_until_ready(self) -> None:
        """Waits until its health check says SERVING. Raises InstanceError if it ends or takes too long."""
        channel = connect(self.address)
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            async with asyncio.timeout(READY_SECONDS):
                while not await _is_serving(stub):
                    if self.status is not None:
                        raise InstanceError(f"{self.name} ended with status {self.status}:\n{self.last_lines()}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise InstanceError(f"{self.name} was not ready within {READY_SECONDS:g} s") from None
        finally:
            await channel.close()

    async def info(self) -> sequence_service_pb2.GetModelInfoResponse:
        """The model information, asked for directly. For draft and target."""
        channel = connect(self.address)
        try:
            request = sequence_service_pb2.GetModelInfoRequest()
            return await SequenceServiceStub(channel).GetModelInfo(request, timeout=10.0, wait_for_ready=True)
        finally:
            await channel.close()

    def stop(self) -> None:
        """Stops the process (SIGSTOP); its peers are not notified."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Ends `stop`."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kills the process (SIGKILL)."""
        self._signal(signal.SIGKILL)
        await self._wait()

    async def terminate(self) -> None:
        """Asks the process to end (SIGTERM) and waits until it has. Raises InstanceError if it does not."""
        self._signal(signal.SIGTERM)
        await self._wait()

    async def clean_up(self) -> None:
        """Ends the process, whatever its state."""
        if self._process is not None:
            await self.kill()

    def last_lines(self, count: int = 20) -> str:
        """The end of the log."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return "\n".join(lines[-count:])

    def _signal(self, number: signal.Signals) -> None:
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                while self.status is None:
                    await asyncio.sleep(END_POLL_SECONDS)
        except TimeoutError:
            raise InstanceError(f"{self.name} did not end within {END_SECONDS:g} s:\n{self.last_lines()}") from None


async def _is_serving(stub: Any) -> bool:
    try:
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=1.0)
    except grpc.aio.AioRpcError:
        return False
    return response.status == health_pb2.HealthCheckResponse.SERVING
