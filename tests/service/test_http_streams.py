"""What happens on the wire: events, clients that leave or do not read, failures at every moment, and the end."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import httpx
import openai
import pytest
from google.protobuf.json_format import ParseDict
from prometheus_client.registry import CollectorRegistry

from coordinator.http import body_limit, connection_limit, stalled_clients
from coordinator.http.app import create_app
from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from specpair.server.http_server import CUT, HttpConnection
from specpair.server.server import BindError
from specpair.v1 import coordinator_service_pb2 as pb
from tests.http_service import http_client, openai_client, running_bundled_pair
from tests.services import RunningPair

PROMPT = "def read_lines(path):\n"
LONG: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair


@pytest.fixture(scope="module")
async def client(pair: RunningPair) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(pair) as client:
        yield client


async def events_of(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Any]:
    """The data of each event of a stream."""
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = (await response.aread()).decode()
    assert text.endswith("\n\n")
    events = text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event if (event := line.removeprefix("data: ")) == "[DONE]" else json.loads(event) for line in events]


async def test_events_end_with_done(client: httpx.AsyncClient) -> None:
    *chunks, done = await events_of(client, {"prompt": PROMPT, "max_tokens": 8})
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


async def test_rounds_are_those_of_the_message(client: httpx.AsyncClient, pair: RunningPair) -> None:
    """Each chunk says all that GenerateTokens says of the round, with numbers as numbers."""
    *chunks, _ = await events_of(client, {"prompt": PROMPT, "max_tokens": 24, "seed": 3, "include_rounds": True})
    request = pb.GenerateTokensRequest(
        text=PROMPT, max_tokens=24, sampling={"seed": 3}, include_rounds=True, include_rejected=True
    )
    responses = [response async for response in pair.coordinator.GenerateTokens(request)]
    documents = [chunk["specpair"] for chunk in chunks if "specpair" in chunk]
    assert len(documents) == len(responses)
    for document, response in zip(documents, responses, strict=True):
        round_ = ParseDict(document["round"], pb.RoundReport())
        assert [token["id"] for token in document["tokens"]] == [token.id for token in response.tokens]
        assert [token["id"] for token in document["rejected"]] == [token.id for token in response.rejected]
        assert (round_.step, len(round_.proposed)) == (response.round.step, len(response.round.proposed))
        assert [entry.target_probability for entry in round_.proposed] == pytest.approx(
            [entry.target_probability for entry in response.round.proposed], abs=1e-4
        )
        times = [value for name in ("draft", "verify") for value in document["round"].get(name, {}).values()]
        assert times and all(type(value) is int for value in times)
    assert {token["origin"] for document in documents for token in document["tokens"]} > {"TOKEN_ORIGIN_ACCEPTED"}


async def wait_until_working(pair: RunningPair) -> None:
    async with asyncio.timeout(60):
        while not len(pair.target.host.sequences):
            await asyncio.sleep(0.005)


async def test_leaving_a_stream_cancels_the_work(
    pair: RunningPair, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "coordinator.serving.accounts")
    headers = {"x-request-id": "the-one-that-left"}
    async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}, headers=headers) as response:
        async for _ in response.aiter_lines():
            break
        assert len(pair.target.host.sequences) == 1
    await pair.check_clean()
    (record,) = [record for record in caplog.records if record.name == "coordinator.serving.accounts"]
    assert record.getMessage() == "request cancelled"
    assert vars(record)["request"] == "the-one-that-left"
    assert vars(record)["completion_tokens"] < 1500


async def test_leaving_before_the_answer_cancels_the_work(pair: RunningPair, client: httpx.AsyncClient) -> None:
    for body in (LONG, {**LONG, "best_of": 3, "stream": True}, {**LONG, "prompt": [PROMPT, PROMPT]}):
        asking = asyncio.create_task(client.post("/v1/completions", json=body))
        await wait_until_working(pair)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await pair.check_clean()


async def test_openai_client_cancels(pair: RunningPair) -> None:
    async with openai_client(pair) as client:
        stream = await client.completions.create(
            model="target", prompt=PROMPT, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        await stream.close()
        await pair.check_clean()


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


async def test_target_that_dies_ends_the_stream_with_an_error() -> None:
    """The status is long sent: the error is an event, and OpenAI's client raises it."""
    async with running_bundled_pair(target_timeout=0.5) as pair, openai_client(pair) as client:
        stream = await client.completions.create(
            model="target", prompt=PROMPT, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        with pytest.raises(openai.APIError, match="target") as caught:
            async for _ in stream:
                await pair.target.stop()
        assert caught.value.body == {"message": caught.value.message, "type": "service_unavailable_error"} | {
            "param": None,
            "code": "peer_unavailable",
        }
        async with http_client(pair) as plain:
            refused = await plain.post("/v1/completions", json={"prompt": PROMPT})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "peer_unavailable"


async def test_full_house_says_when_to_come_again(pair: RunningPair, client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/v1/completions", json={**LONG, "n": 4, "stream": True}) as running:
        assert running.status_code == 200
        refused = await client.post("/v1/completions", json={"prompt": PROMPT})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        streamed = await client.post("/v1/completions", json={"prompt": PROMPT, "stream": True})
        assert streamed.status_code == 429, "what fails before the first event has its own status"
    await pair.check_clean()


@pytest.mark.parametrize(
    ("given", "taken"),
    [("my-id.7", True), ("x" * 128, True), ("x" * 129, False), ("two words", False), ("a\tb", False), ("", False)],
)
async def test_request_ids(client: httpx.AsyncClient, given: str, taken: bool) -> None:
    answer = await client.post(
        "/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}, headers={"x-request-id": given}
    )
    request_id = answer.headers["x-request-id"]
    assert (request_id == given) is taken
    assert answer.json()["id"] == f"cmpl-{request_id}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"prompt": "' + b"x" * 5_000_000 + b'"}', 413),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "x", "temperature": NaN}', 400),
        (b'{"prompt": "x", "temperature": 1' + b"0" * 5000 + b"}", 400),
        (b'{"prompt": "x", "stop": [' + b"1," * 500_000 + b"1]}", 400),
        (b'{"prompt": "x", "n": 4294967295}', 400),
        (b"\xff\xfe", 400),
    ],
)
async def test_bad_bodies(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    answer = await client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert len(answer.text) < 1000, "an error does not repeat what it was sent"


async def test_bodies_of_unknown_length_are_bounded(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(80):
            yield b"x" * 65536

    answer = await client.post("/v1/completions", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_other_paths_and_methods_get_the_same_body(client: httpx.AsyncClient) -> None:
    for answer in (await client.get("/v1/nothing"), await client.get("/v1/completions")):
        assert answer.status_code in (404, 405)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_other_sites_cannot_ask(client: httpx.AsyncClient) -> None:
    """What a browser sends for a stranger's page without asking first is no JSON by its type."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = await client.post("/v1/completions", content=b'{"prompt": "x"}', headers={"content-type": kind})
        assert answer.status_code == 400


async def test_metrics_in_both_formats(client: httpx.AsyncClient) -> None:
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    accepted = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert accepted.headers["content-type"].startswith("application/openmetrics-text")
    assert accepted.text.endswith("# EOF\n")


async def test_strangers_get_no_text_of_unforeseen_errors(
    pair: RunningPair, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr("coordinator.serving.serving.score_prompt", fail)
    for body in ({"prompt": PROMPT}, {"prompt": PROMPT, "stream": True}):
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "internal error"
        assert answer.headers["x-request-id"]
    assert sum("/secret/path" in (record.exc_text or "") for record in caplog.records) == 2
    await pair.check_clean()


async def test_not_ready_before_the_pair_and_while_stopping() -> None:
    front_end = FrontEnd(config=HttpConfig(port=0, grace_seconds=0.0), registry=CollectorRegistry())
    server = HttpServer(front_end)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for path in ("/health", "/v1/models"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        answer = await client.post("/v1/completions", json={"prompt": PROMPT})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "peer_unavailable")
        front_end.is_stopping = True
        answer = await client.post("/v1/completions", json={"prompt": PROMPT})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = HttpConfig(port=taken.getsockname()[1])
        with pytest.raises(BindError, match=f"cannot listen on 127.0.0.1:{config.port}"):
            await HttpServer(FrontEnd(config=config, registry=CollectorRegistry())).start()


async def test_stop_tells_those_who_are_still_reading() -> None:
    async with running_bundled_pair() as pair, http_client(pair) as client:
        async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
            lines = response.aiter_lines()
            await anext(lines)
            stopping = asyncio.create_task(pair.stop())
            rest = [line async for line in lines if line]
            await stopping
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        await pair.check_clean()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "\ud800"},
        {"role": "\ud800", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "\udfff"}]},
    ],
)
async def test_half_a_surrogate_is_no_text(client: httpx.AsyncClient, message: dict[str, Any]) -> None:
    """JSON can hold what UTF-8 cannot."""
    body = json.dumps({"messages": [message], "max_tokens": 4})
    response = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("messages")


@pytest.mark.parametrize(
    "wanted",
    [
        {**LONG, "n": 4, "stream": True, "include_rounds": True, "logprobs": 20},
        {"prompt": [[7] * 1500] * 4, "max_tokens": 1, "prompt_logprobs": 20},  # more than the kernel keeps of its own
    ],
    ids=["stream", "body"],
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
        stalled.sendall(head_of(body) + body)
        async with asyncio.timeout(60):
            while not len(pair.target.host.sequences):
                await asyncio.sleep(0.05)
            while len(pair.target.host.sequences):
                await asyncio.sleep(0.05)
            await is_lost.wait()
    await pair.check_clean()


def head_of(body: bytes, declared: int | None = None) -> bytes:
    """Of a request for a completion; `declared` is what it says of the length of its body, if not the truth."""
    lines = (
        "POST /v1/completions HTTP/1.1",
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
