"""The bundled pair behind HTTP, for tests with OpenAI's client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from tests.services import RunningPair, engine_config, running_pair

BUNDLED = Path(__file__).parents[1] / "models" / "bundled"
PROMPT = "def read_lines(path):\n"
LONG: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}
"""A body for more than any test waits for."""


@asynccontextmanager
async def running_bundled_pair(max_model_len: int | None = None, **options: Any) -> AsyncIterator[RunningPair]:
    """Its models as they are, or with room for less; `options` are fields of CoordinatorConfig."""
    target, draft = (
        engine_config(BUNDLED / name, block_size=16, max_model_len=max_model_len) for name in ("target", "draft")
    )
    async with running_pair(target, draft, **{"num_speculative_tokens": 3, **options}) as pair:
        yield pair


@asynccontextmanager
async def http_client(pair: RunningPair) -> AsyncIterator[httpx.AsyncClient]:
    """A client that knows nothing but HTTP."""
    async with httpx.AsyncClient(base_url=f"http://{pair.http_address}", timeout=30) as client:
        yield client


@asynccontextmanager
async def openai_client(pair: RunningPair) -> AsyncIterator[AsyncOpenAI]:
    """The official client as anybody sets it up, but without patience."""
    url = f"http://{pair.http_address}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


async def wait_until_working(pair: RunningPair) -> None:
    """Until the target holds a sequence."""
    async with asyncio.timeout(60):
        while not len(pair.target.host.sequences):
            await asyncio.sleep(0.005)
