"""The process under attack, as its attacker sees it."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0
ANSWER_SECONDS = 60.0
END_SECONDS = 30.0
SIGNS_OF_A_FAULT = ("Traceback (most recent call last)", "ERROR ", "CRITICAL ", "was never awaited", "never retrieved")
LEVELS = ("DEBUG ", "INFO ", "WARNING ", "ERROR ", "CRITICAL ")
KNOWN = ("ERROR grpc._cython.cygrpc ExecuteBatchError",)
"""gRPC logs this itself when a client disconnects before its answer is sent."""


class Child:
    """Runs `tests.hostile.victim`."""

    def __init__(self, process: Process, addresses: dict[str, str], log_path: Path):
        self.addresses = addresses
        """Of coordinator, target, draft and http."""
        self._process = process
        self._log_path = log_path

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def state(self) -> dict[str, Any]:
        """The resources that it holds now, after a check of its caches' invariants."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await read_answer(self._process, ANSWER_SECONDS, self._log_path)

    def faults(self) -> list[str]:
        """Log records of unexpected errors."""
        return faults_in(self._log_path.read_text(errors="replace").splitlines())


def faults_in(lines: list[str]) -> list[str]:
    """A record begins with its level; the lines after it belong to it."""
    found: list[str] = []
    is_known = False
    for line in lines:
        if line.startswith(LEVELS):
            is_known = line.startswith(KNOWN)
        if not is_known and any(sign in line for sign in SIGNS_OF_A_FAULT):
            found.append(line[:300])
    return found


async def read_answer(process: Process, seconds: float, log_path: Path) -> dict[str, Any]:
    """Its next line of JSON."""
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"the services ended; their log is {log_path}")
    return json.loads(line)


@asynccontextmanager
async def running_child(folder: Path) -> AsyncIterator[Child]:
    """The services, ready; their log and their models are in the folder."""
    log_path = folder / "victim.log"
    with log_path.open("w") as log:
        command = (sys.executable, "-m", "tests.hostile.victim", str(folder))
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=log)
    try:
        addresses = await read_answer(process, START_SECONDS, log_path)
        yield Child(process, addresses, log_path)
    finally:
        await end(process)


async def end(process: Process) -> None:
    """Closes its input, at which it should end; kills it if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
