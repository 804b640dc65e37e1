"""Clients that do not take their answers or do not send what they said are cut off, and nothing is left of them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from coordinator.http import body_limit, connection_limit, stalled_clients
from coordinator.http.app import create_app
from specpair.server.http_server import CUT, HttpConnection
from tests.http_service import LONG, PROMPT, http_client, running_bundled_pair, wait_until_working
from tests.services import RunningPair


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair


async def test_client_that_does_not_read_holds_its_outputs_up(pair: RunningPair) -> None:
    """Of what it does not take, no more than a few rounds are made ahead."""
    takes = asyncio.Semaphore(2)
    left = asyncio.Event()
    body = [{"type": "http.request", "body": json.dumps({**LONG, "stream": True}).encode()}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        await takes.acquire()

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}
    serving = asyncio.create_task(create_app(pair.front_end)(scope, receive, send))  # type: ignore[arg-type]
    await wait_until_working(pair)
    for _ in range(3):
        assert 0 < await standing_still(pair) < 200, "it went on without its client"
        takes.release()
    left.set()
    await serving
    await pair.check_clean()


async def standing_still(pair: RunningPair) -> int:
    """Tokens at the target when no more are added."""
    token_count = -1
    async with asyncio.timeout(60):
        while (count := held_tokens(pair)) != token_count:
            token_count = count
            await asyncio.sleep(0.3)
    return token_count


def held_tokens(pair: RunningPair) -> int:
    """Tokens of all sequences at the target."""
    return sum(sequence.length for sequence in pair.target.host.sequences._held.values())


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    "wanted",
    [
        {**LONG, "n": 4, "stream": True, "include_rounds": True, "logprobs": 20},
        {"prompt": [[7] * 1500] * 4, "max_tokens": 1, "prompt_logprobs": 20},  # more than the kernel keeps of its own
        {"input": PROMPT, "max_output_tokens": 1500, "ignore_eos": True, "stream": True, "top_logprobs": 20},
    ],
    ids=["stream", "body", "response"],
)
async def test_a_client_that_takes_nothing_gives_its_place_back(
    pair: RunningPair, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    """And its connection, which would go on with what its buffers hold for as long as it likes."""
    monkeypatch.setattr(stalled_clients, "STALLED_SECONDS", 1.0)
    is_lost = asyncio.Event()
    end = HttpConnection.connection_lost

    def lose(connection: HttpConnection, error: Exception | None) -> None:
        end(connection, error)
        is_lost.set()

    monkeypatch.setattr(HttpConnection, "connection_lost", lose)
    host, port = pair.http_address.rsplit(":", 1)
    body = json.dumps(wanted).encode()
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((host, int(port)))
        stalled.sendall(head_of(body, path="/v1/responses" if "input" in wanted else "/v1/completions") + body)
        async with asyncio.timeout(60):
            while not len(pair.target.host.sequences):
                await asyncio.sleep(0.05)
            while len(pair.target.host.sequences):
                await asyncio.sleep(0.05)
            await is_lost.wait()
    await pair.check_clean()


def head_of(body: bytes, declared: int | None = None, path: str = "/v1/completions") -> bytes:
    """Of a request; `declared` is what it says of the length of its body, if not the truth."""
    lines = (
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body) if declared is None else declared}",
    )
    return "\r\n".join((*lines, "", "")).encode()


async def test_a_body_that_is_too_large_and_does_not_come_is_answered(
    pair: RunningPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limit, "BODY_SECONDS", 0.3)
    reader, writer = await asyncio.open_connection(*pair.http_address.rsplit(":", 1))
    writer.write(head_of(b"", declared=2**30) + b"x")
    async with asyncio.timeout(10):
        assert (await reader.readline()).split()[1] == b"413"
    writer.close()


async def test_connections_beyond_the_limit_are_refused_and_counted(
    pair: RunningPair, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"path": "/v1/models", "status": "503"}
    before = pair.front_end.registry.get_sample_value("specpair_http_requests_total", labels) or 0.0
    monkeypatch.setattr(connection_limit, "MOST_CONNECTIONS", 1)
    assert (await client.get("/v1/models")).status_code == 200
    async with http_client(pair) as another:
        answer = await another.get("/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "capacity_exhausted")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    assert pair.front_end.registry.get_sample_value("specpair_http_requests_total", labels) == before + 1
    async with asyncio.timeout(10):
        while (await client.get("/v1/models")).status_code != 200:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stalled_at", ["start", "error", "done"])
async def test_no_part_of_an_answer_waits_for_ever(
    pair: RunningPair, monkeypatch: pytest.MonkeyPatch, stalled_at: str
) -> None:
    """Whichever part its client does not take: the connection is cut off, and nothing of the request is left."""
    monkeypatch.setattr(stalled_clients, "STALLED_SECONDS", 0.3)
    parts = {"start": b"", "error": b'"error"', "done": b"[DONE]"}
    is_cut = asyncio.Event()
    parameters = {"prompt": PROMPT, "max_tokens": 8, "stream": True}
    body = [{"type": "http.request", "body": json.dumps(parameters).encode()}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if parts[stalled_at] in message.get("body", b""):
            await asyncio.Event().wait()
        if stalled_at == "error" and "body" in message:
            pair.front_end.grace_is_over.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {CUT: is_cut.set},
    }
    try:
        async with asyncio.timeout(10):
            await create_app(pair.front_end)(scope, receive, send)  # type: ignore[arg-type]
    finally:
        pair.front_end.grace_is_over.clear()
    assert is_cut.is_set()
    await pair.check_clean()
