"""One server of vLLM on the loopback interface."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from bench.http_server import HttpServer
from command.pair.local_pair import LOOPBACK, free_port, killing_on_signals, unless_dead

PROGRAM = "vllm.entrypoints.openai.api_server"
GRACE_SECONDS = 20.0
CACHE_GIB = 1
"""Of keys and values. Without it vLLM takes a share of all memory."""


@dataclass(frozen=True, kw_only=True)
class VllmPlan:
    """What a server serves, fixed for its life: vLLM takes the number of drafted tokens at its start."""

    python: str
    target: str
    draft: str
    dtype: str
    num_speculative_tokens: int
    """0: plain decoding."""
    threads: int
    slots: int
    """Requests at a time."""
    length: int
    """Tokens of a request: prompt and output."""

    def arguments(self, port: int) -> list[str]:
        """The command line after the interpreter. Prompts are not kept: each turn reads its own."""
        words = {
            "--model": self.target,
            "--host": LOOPBACK,
            "--port": port,
            "--dtype": self.dtype,
            "--max-model-len": self.length,
            "--max-num-seqs": self.slots,
            **self.speculation(),
        }
        switches = ["--no-enable-prefix-caching", "--generation-config", "vllm"]
        return ["-m", PROGRAM, *switches, *(str(word) for pair in words.items() for word in pair)]

    def speculation(self) -> dict[str, str]:
        if not self.num_speculative_tokens:
            return {}
        own = {"method": "draft_model", "model": self.draft, "num_speculative_tokens": self.num_speculative_tokens}
        return {"--speculative-config": json.dumps(own)}

    def environment(self) -> dict[str, str]:
        """Without options of the shell, and of ours; as many threads as the others have, each on a core."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))}
        return kept | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{self.threads - 1}",
        }


class VllmServer(HttpServer):
    """A running server. Made by `launch`."""

    @classmethod
    async def launch(cls, plan: VllmPlan) -> Self:
        port = free_port()
        return await cls.begin("vLLM", [plan.python, *plan.arguments(port)], port, plan.environment())


@asynccontextmanager
async def running(plans: Sequence[VllmPlan]) -> AsyncIterator[list[VllmServer]]:
    """The servers, loaded one after the other, since each compiles with all cores; they are stopped at the end. Raises
    CommandError if one ends before it is loaded."""
    servers: list[VllmServer] = []
    try:
        for plan in plans:
            servers.append(await VllmServer.launch(plan))
            await unless_dead(list(servers), servers[-1].wait_until_ready())
        yield servers
    finally:
        with killing_on_signals(list(servers)):
            await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))
