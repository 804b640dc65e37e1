"""vLLM as a peer: servers over the same weights, one for each number of drafted tokens. Idle ones sleep."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.case import Case, Peer
from bench.measurement import Counts, Output
from bench.options import BenchOptions
from bench.progress import Progress
from bench.received import output_of
from bench.specpair_peer import TIMEOUT
from bench.vllm_client import complete, request_for
from bench.vllm_server import VllmPlan, VllmServer, running

NOT_THE_MODELS = ("tables.safetensors",)
"""Files of the bundled draft that vLLM would take for weights: it reads every safetensors file of a folder."""


@dataclass(frozen=True, kw_only=True)
class VllmPeer:
    """The near end of all servers."""

    clients: Mapping[int, httpx.AsyncClient]
    """By the number of drafted tokens; 0 is plain."""
    servers: list[VllmServer]
    facts: Mapping[str, object]
    """Version, type of weights, threads."""

    async def generate(self, case: Case, prompts: list[list[int]], max_tokens: int, seed: int) -> Output:
        """One request for each prompt, all at the same time; the seeds count up from `seed`. Raises CommandError."""
        assert case.num_speculative_tokens is not None, "vLLM's number of drafted tokens is fixed"
        client = self.clients[case.num_speculative_tokens]
        started = time.perf_counter()
        requests = [request_for(case, prompt, max_tokens, seed + i) for i, prompt in enumerate(prompts)]
        received = await asyncio.gather(*(complete(client, request) for request in requests))
        rounds = sum(len(one.arrivals) - 1 for one in received)  # a message has the tokens of a pass
        return output_of(received, started, Counts(rounds=rounds))


def cases_of(options: BenchOptions, temperature: float, batch_size: int) -> Iterator[Case]:
    """Plain, and with each K; nothing if vLLM is not measured."""
    for k in (0, *options.ks) if options.vllm is not None else ():
        yield Case(peer=Peer.VLLM, temperature=temperature, batch_size=batch_size, num_speculative_tokens=k)


@asynccontextmanager
async def vllm_peer(options: BenchOptions, progress: Progress, prompt_length: int) -> AsyncIterator[VllmPeer]:
    """Starts the servers, and stops them at the end. Raises CommandError."""
    assert options.vllm is not None, "vLLM is measured"
    from bench.threads import wanted_threads  # loads torch

    threads = wanted_threads() or len(os.sched_getaffinity(0))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specpair-vllm-")))
        target = links_to(Path(options.target), folder / "target")
        draft = links_to(Path(options.draft), folder / "draft")
        ks = (0, *options.ks)
        plans = [
            VllmPlan(
                python=options.vllm.python,
                target=str(target),
                draft=str(draft),
                dtype=options.vllm.dtype,
                num_speculative_tokens=k,
                threads=threads,
                slots=max(options.batch_sizes),
                length=prompt_length + options.max_tokens,
            )
            for k in ks
        ]
        progress.say(f"starting {len(plans)} servers of vLLM, which compile for a minute or more each")
        servers = await stack.enter_async_context(running(plans))
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT))
            for server in servers
        ]
        facts = {"version": options.vllm.version, "dtype": options.vllm.dtype, "threads": threads}
        yield VllmPeer(clients=dict(zip(ks, clients, strict=True)), servers=servers, facts=facts)


def links_to(model: Path, folder: Path) -> Path:
    """A folder with the files of a model, without those that are for us alone."""
    folder.mkdir()
    for file in model.iterdir():
        if file.name not in NOT_THE_MODELS:
            (folder / file.name).symlink_to(file.absolute())
    return folder
