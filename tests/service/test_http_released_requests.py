"""A body is let go as soon as its request is answered, whatever the answer: one has up to 4 MiB, and more once read."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http_service import running_bundled_pair
from tests.services import RunningPair

MANY = 12_345
"""Entries by which a list of these tests is told from all others."""


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair


def lists() -> list[Any]:
    """Lists of these tests that this process holds."""
    return [one for one in gc.get_objects() if type(one) is list and len(one) == MANY]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {"prompt": "x", "max_tokens": 1, "unknown": [1] * MANY}, 200),
        ("/v1/completions", {"prompt": "x", "max_tokens": 1, "unknown": [1] * MANY, "stream": True}, 200),
        ("/v1/completions", {"prompt": [1] * MANY}, 400),
        ("/v1/completions", {"prompt": [1] * MANY, "stream": True}, 400),
        ("/v1/completions", {"prompt": [[1] * MANY, [1]]}, 400),
        ("/v1/completions", {"prompt": "x", "stop": [1] * MANY}, 400),
        ("/v1/completions", {"prompt": "x", "model": "another", "unknown": [1] * MANY}, 404),
        ("/v1/chat/completions", {"messages": [], "unknown": [1] * MANY}, 400),
        ("/v1/responses", {"input": [1] * MANY}, 400),
        ("/tokenize", {"prompt": [1] * MANY}, 400),
    ],
    ids=[
        *("answered", "streamed", "too long", "too long, streamed", "one of two", "of a wrong type", "unknown model"),
        *("chat", "response", "tokenize"),
    ],
)
async def test_a_body_is_let_go(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    gc.collect()
    gc.disable()  # only what nothing refers to is freed, not what refers to itself
    try:
        before = len(lists())
        answer = await client.post(path, json=body)
        assert answer.status_code == status
        async with asyncio.timeout(10):
            while len(lists()) > before:
                await asyncio.sleep(0.05)
    finally:
        gc.enable()
