"""One llama-server process on the loopback interface."""

import asyncio
import os
import subprocess
from argparse import ArgumentTypeError
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from bench.http_server import ANSWER_SECONDS, HttpServer
from command.failures import CommandError
from command.pair.local_pair import LOOPBACK, free_port, killing_on_signals, unless_dead

LENGTH_FLAG = "--spec-draft-n-max"
"""The flag that this peer needs; in older versions it had another name."""
SURE_LENGTH = 16
SURE_PROBABILITY = 0.75
"""Without a fixed K llama.cpp drafts up to 16 tokens, as long as its draft gives each at least this probability."""
GRACE_SECONDS = 5.0
ROOM = 64
"""Positions beside prompt and output: proposals go beyond the output's end."""


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """What a server serves, fixed for its life: llama.cpp takes the number of drafted tokens only at its start."""

    target: Path
    draft: Path | None
    """None: plain decoding."""
    num_speculative_tokens: int | None
    """None: as many as the draft is sure of."""
    threads: int
    slots: int
    """Requests at a time."""
    length: int
    """Tokens of a request: prompt and output."""

    def arguments(self, port: int) -> list[str]:
        """The command line after the program."""
        words = {
            "--model": self.target,
            "--host": LOOPBACK,
            "--port": port,
            "--threads": self.threads,
            "--threads-batch": self.threads,
            "--parallel": self.slots,
            "--ctx-size": self.slots * (self.length + ROOM),
            "--cache-ram": 0,
            **self.speculation(),
        }
        return ["--no-ui", "--offline", *(str(word) for pair in words.items() for word in pair)]

    def speculation(self) -> dict[str, object]:
        if self.draft is None:
            return {}
        k = self.num_speculative_tokens
        return {
            "--spec-type": "draft-simple",
            "--spec-draft-model": self.draft,
            LENGTH_FLAG: SURE_LENGTH if k is None else k,
            "--spec-draft-p-min": SURE_PROBABILITY if k is None else 0.0,
        }


class LlamaServer(HttpServer):
    """A running llama-server. Made by `launch`."""

    @classmethod
    async def launch(cls, program: str, plan: ServerPlan) -> Self:
        port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
        return await cls.begin("llama-server", [program, *plan.arguments(port)], port, kept)

    async def speculates(self) -> bool:
        """Whether it took the draft: a draft with another vocabulary is only mentioned in the log."""
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_SECONDS) as client:
            return all(slot["speculative"] for slot in (await client.get("/slots")).json())


@asynccontextmanager
async def running(program: str, plans: Sequence[ServerPlan]) -> AsyncIterator[list[LlamaServer]]:
    """The servers, loaded; they are stopped at the end. Raises CommandError if one ends before it is loaded, or does
    not take its draft."""
    servers: list[LlamaServer] = []
    try:
        for plan in plans:
            servers.append(await LlamaServer.launch(program, plan))
        await unless_dead(list(servers), load(servers, plans))
        yield servers
    finally:
        with killing_on_signals(list(servers)):
            await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))


async def load(servers: Sequence[LlamaServer], plans: Sequence[ServerPlan]) -> None:
    """Until all have their models. Raises CommandError if one does not take its draft."""
    await asyncio.gather(*(server.wait_until_ready() for server in servers))
    for server, plan in zip(servers, plans, strict=True):
        if plan.draft is not None and not await server.speculates():
            raise CommandError("llama-server refused the draft: its vocabulary must be the target's")


def llama_server_program(text: str) -> str:
    """The path of a program of the command line. Raises ArgumentTypeError if it is not a llama-server of today."""
    path = str(Path(text).absolute())
    try:
        asked = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArgumentTypeError(f"{text} cannot be run: {error}") from error
    if LENGTH_FLAG not in asked.stdout + asked.stderr:
        raise ArgumentTypeError(f"{text} is not a llama-server, or an old one: its help does not know {LENGTH_FLAG}")
    return path


def version_of(program: str) -> str:
    """What the program says about its version."""
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    return " ".join((asked.stdout + asked.stderr).split())
