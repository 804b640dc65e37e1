"""Checks structured outputs before anything is generated, in processes of their own.

A schema from a stranger may take exponential time or memory to compile. So it is compiled first in a worker process
with limits of its own, which ends with it; draft and target compile only what passed here.
"""

import asyncio
import hashlib
import json
import sys
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from specpair.errors import InvalidGrammarError, NotSupportedError, SpecpairError
from specpair.options import StructuredOutput

MOST_WORKERS = 2
MOST_REMEMBERED = 4096
"""Structured outputs whose results are remembered."""
WAIT_SECONDS = 30.0
"""Longest time of a check. Its limit of processor time comes long before, unless the machine is very busy."""
ROOT = Path(__file__).parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from coordinator.requests.structure_worker import main; main()"
TOO_COMPLEX = "is too complex: it takes too much time or memory to compile"


class StructureChecks:
    """The workers for the vocabulary of one target, started when they are needed. Event loop only."""

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_token_ids: tuple[int, ...]):
        self._vocabulary = {"tokenizer": tokenizer_json, "vocab_size": vocab_size, "eos_token_ids": eos_token_ids}
        self._idle: list[asyncio.subprocess.Process] = []
        self._places = asyncio.Semaphore(MOST_WORKERS)
        self._known: OrderedDict[bytes, str | None] = OrderedDict()
        """By digest: why a structured output cannot be used, None if it can."""

    async def check(self, structured: StructuredOutput) -> None:
        """Raises InvalidGrammarError if the structured output cannot be used, or takes too long to compile;
        NotSupportedError if the tokenizer is of a kind with which none can."""
        digest = hashlib.sha256(f"{structured.kind}:{structured.source}".encode(errors="replace")).digest()
        if digest not in self._known:
            self._known[digest] = await self._ask(structured)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        if (problem := self._known[digest]) is not None:
            raise InvalidGrammarError(problem)

    async def close(self) -> None:
        """Ends the workers."""
        while self._idle:
            await _end(self._idle.pop())

    async def _ask(self, structured: StructuredOutput) -> str | None:
        """Why it cannot be used. A worker that does not answer is ended: the next check starts another."""
        async with self._places:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                answer = await _answer(worker, {"kind": structured.kind, "source": structured.source})
            except BaseException:
                await _end(worker)
                raise
            if answer is None:
                await _end(worker)
                return TOO_COMPLEX
            self._idle.append(worker)
            return answer["problem"]

    async def _start(self) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, str(ROOT)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
        started = await _answer(worker, self._vocabulary)
        if started is not None and started["ready"]:
            return worker
        await _end(worker)
        if started is None:
            raise SpecpairError("the process that checks structured outputs does not start")
        raise NotSupportedError("structured_output: the model's tokenizer cannot be used for it")


async def _answer(worker: asyncio.subprocess.Process, question: dict[str, Any]) -> Any:
    """The worker's answer; None if it ended, or gave none in time."""
    assert worker.stdin is not None and worker.stdout is not None
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            worker.stdin.write(json.dumps(question).encode() + b"\n")
            await worker.stdin.drain()
            line = await worker.stdout.readline()
            return json.loads(line) if line else None
    return None


async def _end(worker: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        worker.kill()
    assert worker.stdin is not None
    worker.stdin.close()
    await worker.wait()
