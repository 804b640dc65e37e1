"""`specpair chat` as a process, on pipes and on a terminal, against real services of the bundled pair."""

import asyncio
import os
import pty
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.services import RunningPair, engine_config, running_pair

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
COMMAND = [sys.executable, "-m", "command", "chat"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "200"}
LIMIT = 60.0


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_pair(engine_config(BUNDLED / "target"), engine_config(BUNDLED / "draft")) as pair:
        yield pair


async def talk(pair: RunningPair, said: str, *flags: str) -> tuple[int | None, str, str]:
    """Exit status, standard output and standard error of a chat over pipes."""
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "--address", pair.address, "--num-speculative-tokens", "3", *flags),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=ENVIRONMENT,
    )
    async with asyncio.timeout(LIMIT):
        out, err = await process.communicate(said.encode())
    return process.returncode, out.decode(), err.decode()


async def answer_to(pair: RunningPair, messages: list[tuple[str, str]]) -> str:
    request = pb.GenerateTokensRequest(max_tokens=16, num_speculative_tokens=3)
    request.sampling.seed = 5
    for role, content in messages:
        request.chat.messages.add(role=role, content=content)
    return "".join([response.text async for response in pair.coordinator.GenerateTokens(request)])


async def test_lines_of_a_pipe_are_one_conversation(pair: RunningPair) -> None:
    said = [("system", "Be brief."), ("user", "def add(a, b):")]
    first = await answer_to(pair, said)
    said += [("assistant", first), ("user", "class Stack:")]
    second = await answer_to(pair, said)
    assert second != await answer_to(pair, said[-1:]), "what was said before must matter for this test"
    flags = ["--system", "Be brief.", "--seed", "5", "--max-tokens", "16"]
    status, out, err = await talk(pair, "def add(a, b):\n\nclass Stack:\n", *flags)
    assert (status, out) == (0, f"{first}\n{second}\n")
    assert err.count("tokens per round") == 2 and "acceptance rate" in err
    again = await talk(pair, "def add(a, b):\n/new\ndef add(a, b):\n/exit\nclass Stack:\n", *flags)
    assert again[:2] == (0, f"{first}\n{first}\n")


async def test_a_failed_answer_ends_a_pipe(pair: RunningPair) -> None:
    status, out, err = await talk(pair, "Hello\n" * 3, "--temperature", "-1")
    assert (status, out) == (2, "")
    assert "temperature" in err and err.count("\n") == 1


async def test_a_conversation_that_grew_too_long_says_what_helps(pair: RunningPair) -> None:
    status, _, err = await talk(pair, "word " * 3000)
    assert status == 1 and "/new begins a new conversation" in err


async def test_without_a_chat_format_plain_text_is_offered(tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(BUNDLED / "target", target)
    (target / "chat_template.jinja").unlink()
    async with running_pair(engine_config(target)) as pair:
        status, out, err = await talk(pair, "import os\n", "--max-tokens", "8")
        assert (status, out) == (2, "")
        assert err == "specpair: the model has no chat format; with --plain it continues plain text\n"
        status, out, err = await talk(pair, "import os\nimport sys\n", "--max-tokens", "8", "--plain")
        assert status == 0 and err.count("8 tokens in") == 2


OWN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of the process, so that Ctrl-C reaches it, even if the tests run in the background. A program
of its own: to run Python between fork and exec in a process with gRPC's threads crashes now and then."""


class Terminal:
    """A terminal with a process on it."""

    def __init__(self, master: int, process: Process):
        self._master = master
        self._process = process
        self.shown = ""

    async def type(self, keys: str) -> None:
        await asyncio.to_thread(os.write, self._master, keys.encode())

    async def wait_for(self, text: str) -> None:
        """Until the text is shown behind all that was waited for before."""
        async with asyncio.timeout(LIMIT):
            while text not in self.shown:
                self.shown += (await asyncio.to_thread(os.read, self._master, 4096)).decode()
        self.shown = self.shown.split(text, 1)[1]

    async def until_end(self) -> str:
        """All that is shown until the process closes the terminal, behind all that was waited for."""
        async with asyncio.timeout(LIMIT):
            with suppress(OSError):  # Linux's way to say that nobody holds the other side
                while data := await asyncio.to_thread(os.read, self._master, 4096):
                    self.shown += data.decode(errors="replace")
        return self.shown

    async def status(self) -> int:
        async with asyncio.timeout(LIMIT):
            return await self._process.wait()


@asynccontextmanager
async def on_terminal(*command: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    own = (sys.executable, "-c", OWN_TERMINAL, *command)
    process = await asyncio.create_subprocess_exec(
        *own, stdin=slave, stdout=slave, stderr=slave, env=ENVIRONMENT, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


async def test_ctrl_c_stops_an_answer_and_ctrl_d_ends(pair: RunningPair) -> None:
    flags = ["--address", pair.address, "--max-tokens", "900", "--seed", "3", "--num-speculative-tokens", "1"]
    async with on_terminal(*COMMAND, *flags) as terminal:
        await terminal.wait_for("Ctrl-C stops an answer")
        await terminal.wait_for("> ")
        await terminal.type("class Stack:\n")
        await terminal.wait_for("\x1b[34m")  # blue: a round of the answer
        await terminal.type("\x03")
        await terminal.wait_for("stopped")
        await pair.check_clean()
        await terminal.wait_for("> ")
        await terminal.type("class\x03")
        await terminal.wait_for("> ")
        await terminal.type("/new\n")
        await terminal.wait_for("> ")
        await terminal.type("/help\n")
        await terminal.wait_for("/exit ends, as Ctrl-D does")
        await terminal.type("/newer\n")
        await terminal.wait_for("/newer is no command")
        await terminal.wait_for("> ")
        await terminal.type("\x04")
        assert await terminal.status() == 0
