"""What happens on the wire: events, clients that leave, failures at every moment, and the end."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from google.protobuf.json_format import ParseDict
from prometheus_client.registry import CollectorRegistry

from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from specpair.server.server import BindError
from specpair.v1 import coordinator_service_pb2 as pb
from tests.http_service import LONG, PROMPT, http_client, openai_client, running_bundled_pair, wait_until_working
from tests.services import RunningPair


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair


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
