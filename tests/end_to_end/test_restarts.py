"""`specpair up` while its services are killed: requests go on, and each service comes back."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from specpair.client.channel import connect
from specpair.client.resuming import generate_tokens
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.end_to_end.test_specpair import ENVIRONMENT, free_ports

PATIENCE = 100.0
"""Seconds; on a machine with other work everything takes its time."""
TOKENS = 400
EARLY = 20
REQUEST = pb.GenerateTokensRequest(
    text="def read_lines(path):\n",
    sampling={"temperature": 0.0},  # pyright: ignore[reportArgumentType]
    max_tokens=TOKENS,
    ignore_eos=True,
    num_speculative_tokens=3,
)
END = "^the {} ended with status -9: starting it again in 1 s$"
READY = "^{} ready after"
UP = [sys.executable, "-m", "command", "up", "--deterministic", "--http-port", "0"]
UP += ["--draft-metrics-port", "0", "--target-metrics-port", "0"]


class Up:
    """A running `specpair up` whose output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path):
        self.process = process
        self.address = address
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def pid_of(self, name: str) -> int:
        """The service's process, found among the children of `up`."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in pids}
        (found,) = (pid for pid, line in words.items() if b"serve" in line and name.encode() in line)
        return int(found)

    def wait_for(self, line: str, count: int = 1) -> None:
        end = time.monotonic() + PATIENCE
        while len(re.findall(line, self.log, re.MULTILINE)) < count:
            assert self.process.poll() is None and time.monotonic() < end, self.log
            time.sleep(0.05)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Stopped by SIGTERM, which leaves no process behind."""
    port, *peer_ports = free_ports(3)
    ports = ["--port", str(port), "--draft-port", str(peer_ports[0]), "--target-port", str(peer_ports[1])]
    log = tmp_path_factory.mktemp("up") / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen([*UP, *ports], stdout=output, stderr=subprocess.STDOUT, env=ENVIRONMENT) as process,
    ):
        try:
            up = Up(process, f"127.0.0.1:{port}", log)
            up.wait_for("^ready; try")
            yield up
        finally:
            process.terminate()
            process.wait(timeout=30)


@asynccontextmanager
async def coordinator(up: Up) -> AsyncIterator[CoordinatorServiceStub]:
    channel = connect(up.address)
    try:
        yield CoordinatorServiceStub(channel)
    finally:
        await channel.close()


async def generate(
    stub: CoordinatorServiceStub, early: Callable[[], object] = lambda: None
) -> tuple[list[int], pb.GenerationSummary]:
    """The tokens and the numbers at the end; `early` is called once, after the first tokens."""
    tokens: list[int] = []
    summary = None
    async for response in generate_tokens(stub, REQUEST, patience=PATIENCE):
        is_before = len(tokens) < EARLY
        tokens += [token.id for token in response.tokens]
        if is_before and len(tokens) >= EARLY:
            early()
        if response.HasField("summary"):
            summary = response.summary
    assert summary is not None
    return tokens, summary


@pytest.mark.few_cases("target")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["draft", "target", "coordinator"])
async def test_a_stream_goes_on_while_a_service_is_killed_and_started_again(up: Up, name: str) -> None:
    async with coordinator(up) as stub:
        expected, whole = await generate(stub)
        killed = up.pid_of(name)
        tokens, disturbed = await generate(stub, lambda: os.kill(killed, signal.SIGKILL))
        assert tokens == expected and len(tokens) == TOKENS
        await asyncio.to_thread(up.wait_for, END.format(name))
        await asyncio.to_thread(up.wait_for, READY.format(name), 2)
        assert up.pid_of(name) != killed
        if name == "draft":
            assert disturbed.speculation.draft_token_count < whole.speculation.draft_token_count, "killed too late"
        async with asyncio.timeout(PATIENCE):
            while (again := await generate(stub))[1].speculation.draft_token_count == 0:
                await asyncio.sleep(0.1)
        assert again[0] == expected


@pytest.mark.timeout(240)
def test_a_stop_while_a_service_is_away_is_quick_and_leaves_no_process(up: Up) -> None:
    """The last test of the file: it ends the pair."""
    pids = [up.pid_of(name) for name in ("draft", "target", "coordinator")]
    os.kill(pids[0], signal.SIGKILL)
    up.wait_for("^the draft ended with status -9: starting it again in")
    begin = time.monotonic()
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(timeout=30) == 0, up.log
    assert time.monotonic() - begin < 10
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
