"""Checks structured outputs before anything is generated, in processes of their own.

A schema from a stranger may take exponential time or memory to compile. So it is compiled first in a worker process
with limits of its own, which ends with it; draft and target compile only what passed here.
"""

import asyncio
import hashlib
import json
import signal
import sys
from collections import OrderedDict
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from specpair.errors import CapacityExhaustedError, InvalidGrammarError, NotSupportedError, SpecpairError
from specpair.options import StructuredOutput
from specpair.server.identity import ANONYMOUS, client_name

MOST_WORKERS = 2
MOST_REMEMBERED = 4096
"""Structured outputs whose results are remembered."""
MOST_ATTEMPTS = 2
"""Workers that a check may need: one may have ended for a reason of its own."""
WAIT_SECONDS = 30.0
"""Longest time of a check. Its limit of processor time comes long before, unless the machine is very busy."""
END_SECONDS = 5.0
"""Longest wait for a worker whose output has ended; then it is killed."""
ROOT = Path(__file__).parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from coordinator.requests.structure_worker import main; main()"
UNREADABLE = "structured_output: the target's tokenizer cannot be used for it"
TOO_COMPLEX = "is too complex: it takes too much time or memory to compile"


class StructureChecks:
    """The workers for the vocabulary of one target, started when they are needed. Event loop only."""

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_token_ids: tuple[int, ...]):
        self._vocabulary = {"tokenizer": tokenizer_json, "vocab_size": vocab_size, "eos_token_ids": eos_token_ids}
        self._is_unreadable = False
        """Whether the library cannot read the tokenizer, as a worker found out."""
        self._idle: list[asyncio.subprocess.Process] = []
        self._places = asyncio.Semaphore(MOST_WORKERS)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By client: one of its checks at a time, so that it never has all workers."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._known: OrderedDict[bytes, str | None] = OrderedDict()
        """By digest: why a structured output cannot be used, None if it can."""

    async def check(self, structured: StructuredOutput) -> None:
        """Raises InvalidGrammarError if the structured output cannot be used, or takes too long to compile;
        NotSupportedError if none can; CapacityExhaustedError if the machine is too busy to find out."""
        digest = hashlib.sha256(f"{structured.kind}:{structured.source}".encode(errors="replace")).digest()
        if self._is_unreadable:
            raise NotSupportedError(UNREADABLE)
        if digest not in self._known:
            await self._find_out(digest, structured)
        if (problem := self._known[digest]) is not None:
            raise InvalidGrammarError(problem)

    async def close(self) -> None:
        """Ends the workers."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._idle:
            await _end(self._idle.pop())

    async def _find_out(self, digest: bytes, structured: StructuredOutput) -> None:
        """Adds a result to those that are known. A check that has begun goes on without its caller: a client that
        leaves costs no worker."""
        async with AsyncExitStack() as held:
            client = client_name()
            if client != ANONYMOUS:
                await held.enter_async_context(self._turns.setdefault(client, asyncio.Semaphore()))
            await held.enter_async_context(self._places)
            if digest in self._known:  # by another request meanwhile
                return
            task = asyncio.create_task(self._compute(digest, structured, held.pop_all()))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    async def _compute(self, digest: bytes, structured: StructuredOutput, held: AsyncExitStack) -> None:
        """Releases what is held when the check has ended."""
        async with held:
            self._known[digest] = await self._ask(structured)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)

    async def _ask(self, structured: StructuredOutput) -> str | None:
        """Why it cannot be used. A worker that does not answer is ended: the next check starts another."""
        for _ in range(MOST_ATTEMPTS):
            worker = await self._worker()
            try:
                answer = await _answer(worker, {"kind": structured.kind, "source": structured.source})
            except BaseException:
                await _end(worker)
                raise
            if answer is not None:
                self._idle.append(worker)
                return answer["problem"]
            if await _end(worker) == -signal.SIGPROF:
                break
        return TOO_COMPLEX

    async def _worker(self) -> asyncio.subprocess.Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                return worker
        return await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, str(ROOT)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
        try:
            answer = await _answer(worker, self._vocabulary)
            if answer is None:
                raise SpecpairError("the process that checks structured outputs does not start")
            if not answer["ready"]:
                self._is_unreadable = True
                raise NotSupportedError(UNREADABLE)
        except BaseException:
            await _end(worker)
            raise
        return worker


async def _answer(worker: asyncio.subprocess.Process, question: dict[str, Any]) -> Any:
    """The worker's answer; None if it ended. Raises CapacityExhaustedError if it gave none in time."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            with suppress(OSError):
                worker.stdin.write(json.dumps(question).encode() + b"\n")
                await worker.stdin.drain()
            line = await worker.stdout.readline()
            return json.loads(line) if line.endswith(b"\n") else None
    except TimeoutError:
        raise CapacityExhaustedError("the machine is too busy to check the structured output") from None


async def _end(worker: asyncio.subprocess.Process) -> int:
    """Ends the worker if it has not ended by itself. Returns how it ended, as `returncode`."""
    if worker.stdout is not None and worker.stdout.at_eof():
        with suppress(TimeoutError):  # it is ending: how, is known in a moment
            return await asyncio.wait_for(worker.wait(), END_SECONDS)
    with suppress(ProcessLookupError):
        worker.kill()
    assert worker.stdin is not None
    worker.stdin.close()
    return await worker.wait()
