"""`transformers` in its own process, which sleeps while other cases are measured."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any

from bench.case import Case
from bench.measurement import Output
from bench.options import BenchOptions

STOP_SECONDS = 10.0


class TransformersPeer:
    """The near end of the pipe. One call at a time."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self.facts: dict[str, object] = {}
        """Facts about the process; known when it is ready."""

    async def wait_until_ready(self) -> None:
        self.facts = await self._receive()

    async def generate(self, case: Case, prompts: list[list[int]], max_tokens: int, seed: int) -> Output:
        """Like TransformersModel.generate. Raises RuntimeError with the error of the process."""
        self._connection.send((case, prompts, max_tokens, seed))
        return await self._receive()

    async def _receive(self) -> Any:
        answer = await asyncio.to_thread(self._connection.recv)
        if isinstance(answer, str):
            raise RuntimeError(f"the transformers process failed:\n{answer}")
        return answer


@asynccontextmanager
async def transformers_peer(options: BenchOptions) -> AsyncIterator[TransformersPeer]:
    """Starts the process, which loads the models, and stops it at the end."""
    context = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    near, far = context.Pipe()
    process = context.Process(
        target=answer_requests, args=(far, options.target, options.draft, options.dtype, options.device), daemon=True
    )
    process.start()
    far.close()
    peer = TransformersPeer(near)
    try:
        await peer.wait_until_ready()
        yield peer
    finally:
        near.close()  # the process reads the end of its pipe, and ends
        await asyncio.to_thread(process.join, STOP_SECONDS)
        if process.is_alive():
            process.kill()


def answer_requests(connection: Connection, target: str, draft: str, dtype: Any, device: str) -> None:
    """The process: loads the models, then answers requests until the pipe closes. Errors are sent as text."""
    import traceback

    from transformers.utils import logging

    from bench.transformers_model import TransformersModel

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = TransformersModel(target, draft, dtype, device)
        connection.send(model.facts())
        while True:
            connection.send(model.generate(*connection.recv()))
    except (EOFError, BrokenPipeError):
        return
    except Exception:
        connection.send(traceback.format_exc())
