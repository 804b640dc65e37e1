"""Checks structured outputs before anything is generated, in processes of their own.

A schema from a stranger may take exponential time or memory to compile. So it is compiled first in a worker process
with limits of its own, which ends with it; draft and target compile only what passed here.
"""

import asyncio
import hashlib
import signal
from collections import OrderedDict
from contextlib import AsyncExitStack
from typing import Any
from weakref import WeakValueDictionary

from coordinator.requests.structure_process import StructureProcess
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
UNREADABLE = "structured_output: the target's tokenizer cannot be used for it"
TOO_COMPLEX = "is too complex: it takes too much time or memory to compile"


class StructureChecks:
    """The workers for the vocabulary of one target, started when they are needed. Event loop only."""

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_token_ids: tuple[int, ...]):
        self._vocabulary = {"tokenizer": tokenizer_json, "vocab_size": vocab_size, "eos_token_ids": eos_token_ids}
        self._is_unreadable = False
        """Whether the library cannot read the tokenizer, as a worker found out."""
        self._idle: list[StructureProcess] = []
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
            answer = await _answer(worker, {"kind": structured.kind, "source": structured.source})
            if answer is not None:
                self._idle.append(worker)
                return answer["problem"]
            if await asyncio.to_thread(worker.wait) == -signal.SIGPROF:
                break
        return TOO_COMPLEX

    async def _worker(self) -> StructureProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_running:
                return worker
            await asyncio.to_thread(worker.wait)
        return await self._start()

    async def _start(self) -> StructureProcess:
        worker = await _started()
        answer = await _answer(worker, self._vocabulary)
        if answer is None:
            code = await asyncio.to_thread(worker.wait)
            raise SpecpairError(f"the process that checks structured outputs does not start: it ended with {code}")
        if not answer["ready"]:
            await _end(worker)
            self._is_unreadable = True
            raise NotSupportedError(UNREADABLE)
        return worker


async def _started() -> StructureProcess:
    """A new worker, which is ended if the caller leaves meanwhile."""
    starting = asyncio.create_task(asyncio.to_thread(StructureProcess))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _answer(worker: StructureProcess, question: dict[str, Any]) -> Any:
    """The worker's answer; None if it ended. Raises CapacityExhaustedError if it gave none in time, and ends it then,
    and if the caller leaves."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await asyncio.to_thread(worker.ask, question)
    except TimeoutError:
        await _end(worker)
        raise CapacityExhaustedError("the machine is too busy to check the structured output") from None
    except BaseException:
        await _end(worker)
        raise


async def _end(worker: StructureProcess) -> None:
    worker.kill()
    await asyncio.to_thread(worker.wait)
