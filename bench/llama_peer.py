"""llama.cpp as a peer: servers over the same weights, which sleep while other cases are measured."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import httpx

from bench.case import Case, Peer, Weights
from bench.llama_client import complete, log_probabilities, request_for
from bench.llama_server import LlamaServer, ServerPlan, running, version_of
from bench.measurement import Counts, Output
from bench.options import BenchOptions
from bench.progress import Progress
from bench.received import output_of
from bench.specpair_peer import TIMEOUT

Key = tuple[Weights, int | None]
"""The weights of a server, and its number of drafted tokens: 0 is plain, None as many as the draft is sure of."""


@dataclass(frozen=True, kw_only=True)
class LlamaPeer:
    """The near end of all servers."""

    clients: Mapping[Key, httpx.AsyncClient]
    servers: list[LlamaServer]
    facts: Mapping[str, object]
    """Version and threads."""

    async def generate(self, case: Case, prompts: list[list[int]], max_tokens: int, seed: int) -> Output:
        """One request for each prompt, all at the same time; the seeds count up from `seed`. Raises CommandError."""
        client = self._client(case.weights, case.num_speculative_tokens)
        started = time.perf_counter()
        requests = [request_for(case, prompt, max_tokens, seed + i) for i, prompt in enumerate(prompts)]
        done = await asyncio.gather(*(complete(client, request) for request in requests))
        counts = Counts.total(completion.counts for completion in done)
        return output_of([completion.received for completion in done], started, counts)

    async def log_probabilities(self, weights: Weights, prompt: list[int]) -> dict[int, float]:
        """The likeliest tokens after the prompt, by the plain target."""
        return await log_probabilities(self._client(weights, 0), prompt)

    def _client(self, weights: Weights | None, k: int | None) -> httpx.AsyncClient:
        assert weights is not None, "a case of llama.cpp names its weights"
        return self.clients[weights, k]


def cases_of(options: BenchOptions, temperature: float, batch_size: int) -> Iterator[Case]:
    """Plain, with each K, and with as many tokens as the draft is sure of; nothing if llama.cpp is not measured."""
    for weights, k in keys_of(options):
        yield Case(
            peer=Peer.LLAMA,
            temperature=temperature,
            batch_size=batch_size,
            num_speculative_tokens=k,
            weights=weights,
        )


def keys_of(options: BenchOptions) -> list[Key]:
    """The servers to start, plain ones alone without K. A GGUF file of somebody else is served plain: the draft is not
    known to fit."""
    if options.llama is None:
        return []
    if options.llama.gguf is not None:
        return [(Weights.FILE, 0)]
    speculating = (*options.ks, None) if options.ks else ()
    return list(product(options.llama.weights, (0, *speculating)))


@asynccontextmanager
async def llama_peer(options: BenchOptions, progress: Progress, prompt_length: int) -> AsyncIterator[LlamaPeer]:
    """Writes the files and starts the servers; stops them and removes the files at the end. Raises CommandError."""
    assert options.llama is not None, "llama.cpp is measured"
    from bench.threads import wanted_threads  # loads torch

    threads = wanted_threads() or len(os.sched_getaffinity(0))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specpair-gguf-")))
        keys = keys_of(options)
        await asyncio.to_thread(write_files, options, folder, progress)
        plans = [
            ServerPlan(
                target=file_of(options, folder, "target", weights),
                draft=None if k == 0 else file_of(options, folder, "draft", weights),
                num_speculative_tokens=k,
                threads=threads,
                slots=max(options.batch_sizes),
                length=prompt_length + options.max_tokens,
            )
            for weights, k in keys
        ]
        progress.say(f"starting {len(plans)} llama-servers")
        servers = await stack.enter_async_context(running(options.llama.server, plans))
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT))
            for server in servers
        ]
        facts = {"version": version_of(options.llama.server), "threads": threads}
        yield LlamaPeer(clients=dict(zip(keys, clients, strict=True)), servers=servers, facts=facts)


def write_files(options: BenchOptions, folder: Path, progress: Progress) -> None:
    """The pair with each kind of weights."""
    from bench.gguf_file import write_gguf  # loads torch

    for weights in sorted({weights for weights, _ in keys_of(options)} - {Weights.FILE}):
        progress.say(f"writing the pair as GGUF in {weights}")
        for role, model in (("target", options.target), ("draft", options.draft)):
            write_gguf(Path(model), file_of(options, folder, role, weights), weights)


def file_of(options: BenchOptions, folder: Path, role: str, weights: Weights) -> Path:
    if weights is Weights.FILE:
        assert options.llama is not None and options.llama.gguf is not None
        return Path(options.llama.gguf)
    return folder / f"{role}-{weights}.gguf"
