"""`specpair serve` with /metrics, as a process, and what the metrics say of a cache that is too small."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.services import engine_config, running_pair
from tests.tiny_models import make_model

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "command", "serve", "draft", "--drafter", "ngram", "--port", "0"]


@asynccontextmanager
async def draft_process(metrics_port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A draft service without a model; terminated at the end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--metrics-port", str(metrics_port), stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def read_until(process: asyncio.subprocess.Process, words: str) -> str:
    """The log up to a line that has these words, or its end."""
    assert process.stderr is not None
    lines = []
    while line := (await process.stderr.readline()).decode():
        lines.append(line)
        if words in line:
            break
    return "".join(lines)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


async def test_draft_process_serves_metrics() -> None:
    port = free_port()
    async with draft_process(port) as process, httpx.AsyncClient() as client:
        log = await read_until(process, "listening on")
        assert f"metrics at http://127.0.0.1:{port}/metrics" in log
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
    assert "\nspecpair_sequences_open 0.0\n" in text
    assert 'service="draft"' in text
    assert process.returncode == 0


async def test_taken_metrics_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with draft_process(port) as process:
            log = await read_until(process, "never")
            assert await process.wait() == 1
    assert f"draft service cannot start: cannot listen on 127.0.0.1:{port}: " in log and "see --metrics-port" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("cache", ["paged", "contiguous"])
async def test_caches_that_are_taken_away_are_evictions(cache: str, tmp_path: Path) -> None:
    small = {"cache": cache, "num_blocks": 18, "max_model_len": 36}  # of 4 tokens; a request needs up to 9 of them
    async with running_pair(engine_config(make_model(tmp_path / "target", seed=5), **small)) as pair:
        await pair.generate([1] * 8, 8, temperature=0)
        assert pair.target.registry.get_sample_value("specpair_cache_evictions_total") == 0
        await asyncio.gather(*(pair.generate([i + 1] * 12, 20, temperature=0) for i in range(5)))
        await pair.check_clean()
        evicted = pair.target.registry.get_sample_value("specpair_cache_evictions_total")
        taken = pair.target.host.engine.statistics.evicted_blocks
        assert evicted is not None and 0 < taken <= evicted
