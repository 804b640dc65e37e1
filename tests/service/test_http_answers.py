"""What answers hold beside text: logprobs within bounds, offsets, usage, and counters that agree with them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import httpx
import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.http_service import http_client, running_bundled_pair
from tests.services import RunningPair

COUNTER = "specpair_http_requests_total"
PROMPT = "def read_lines(path):\n"
UNUSUAL = "x = '😀é😀' + 'né'\n"


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair() as pair:
        yield pair


async def complete(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json={"max_tokens": 4, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def stream(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    """The chunks, without [DONE]."""
    answer = await client.post("/v1/completions", json={"max_tokens": 4, "stream": True, **body})
    *events, done = answer.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def counted(pair: RunningPair, name: str, **labels: str) -> float:
    """Of the coordinator; the sum over all series with these labels."""
    samples = [sample for family in pair.front_end.registry.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


async def test_prompt_logprobs_come_once_for_each_prompt(client: httpx.AsyncClient) -> None:
    options: dict[str, Any] = {"prompt": [PROMPT, "import os"], "n": 3, "prompt_logprobs": 2}
    choices = (await complete(client, **options))["choices"]
    assert [choice["prompt_logprobs"] is not None for choice in choices] == [True, False, False] * 2
    alone = (await complete(client, **{**options, "prompt": "import os"}))["choices"]
    for entry, entry_alone in zip(choices[3]["prompt_logprobs"], alone[0]["prompt_logprobs"], strict=True):
        assert logprobs_by_id(entry) == pytest.approx(logprobs_by_id(entry_alone), abs=1e-3)
    told = [choice for chunk in await stream(client, **options) for choice in chunk["choices"]]
    assert [choice["index"] for choice in told if choice.get("prompt_logprobs")] in ([0, 3], [3, 0])


def logprobs_by_id(entry: dict[str, Any] | None) -> dict[str, float]:
    return {token_id: likely["logprob"] for token_id, likely in (entry or {}).items()}


async def test_prompt_logprobs_of_chat_come_once(client: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "n": 2, "prompt_logprobs": 0}
    choices = (await client.post("/v1/chat/completions", json=body)).json()["choices"]
    assert [choice["prompt_logprobs"] is not None for choice in choices] == [True, False]


async def test_a_long_answer_is_the_short_one_in_pieces(client: httpx.AsyncClient) -> None:
    """300 tokens are made in pieces, 4 are not; what is said of the first ones is the same."""
    options: dict[str, Any] = {"prompt": PROMPT, "logprobs": 3, "prompt_logprobs": 1, "seed": 5, "ignore_eos": True}
    options |= {"rule": "coupled", "echo": True}
    long = (await complete(client, **options, max_tokens=300))["choices"][0]
    short = (await complete(client, **options))["choices"][0]
    count = len(short["logprobs"]["tokens"])
    assert {len(column) for column in long["logprobs"].values()} == {count + 296}
    for name in ("tokens", "text_offset"):
        assert long["logprobs"][name][:count] == short["logprobs"][name]
    assert long["logprobs"]["token_logprobs"][1:count] == pytest.approx(
        short["logprobs"]["token_logprobs"][1:], abs=1e-3
    )
    assert long["prompt_logprobs"][1:] and long["prompt_logprobs"][0] is None


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"n": 32, "logprobs": 20, "max_tokens": 1000}, "logprobs"),
        ({"n": 32, "logprobs": 20, "max_tokens": 1, "echo": True, "prompt": [5] * 600}, "logprobs"),
        ({"prompt": [[5] * 250] * 60, "prompt_logprobs": 20, "max_tokens": 0}, "prompt_logprobs"),
    ],
)
async def test_too_many_logprobs_are_refused(
    client: httpx.AsyncClient, changes: dict[str, Any], parameter: str
) -> None:
    for is_stream in (False, True):
        answer = await client.post("/v1/completions", json={"prompt": PROMPT, "stream": is_stream, **changes})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == parameter
        assert all(word in error["message"] for word in ("n ", parameter, "prompt of", "at most"))


async def test_the_bound_is_grpcs_as_well(pair: RunningPair) -> None:
    request = pb.GenerateTokensRequest(text=PROMPT, n=32, logprobs=20, max_tokens=1000)
    with pytest.raises(grpc.aio.AioRpcError, match="logprobs: n 32, logprobs 20, max_tokens 1000") as caught:
        await pair.coordinator.GenerateTokens(request).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("as_ids", [False, True])
async def test_offsets_behind_characters_of_several_tokens(
    pair: RunningPair, client: httpx.AsyncClient, as_ids: bool
) -> None:
    tokenizer = pair.front_end.serving.pair.target.tokenizer
    assert tokenizer is not None
    prompt = tokenizer.encode(UNUSUAL) if as_ids else UNUSUAL
    options: dict[str, Any] = {"prompt": prompt, "logprobs": 0, "echo": True, "max_tokens": 8, "seed": 1, "n": 2}
    choices = (await complete(client, **options))["choices"]
    for choice in choices:
        logprobs, text = choice["logprobs"], choice["text"]
        assert text.startswith(UNUSUAL)
        placed = list(zip(logprobs["tokens"], logprobs["text_offset"], strict=True))
        assert sum(token.startswith("token_id:") for token, _ in placed) >= 4, "no character has several tokens"
        assert all(text.startswith(token, at) for token, at in placed if not token.startswith("token_id:"))
        assert len(UNUSUAL) in logprobs["text_offset"], "the output begins behind the prompt"
    told = [choice for chunk in await stream(client, **options) for choice in chunk["choices"] if choice["logprobs"]]
    for choice in choices:
        pieces = [piece["logprobs"] for piece in told if piece["index"] == choice["index"]]
        assert [at for piece in pieces for at in piece["text_offset"]][: len(UNUSUAL)] == (
            choice["logprobs"]["text_offset"][: len(UNUSUAL)]
        )


async def test_offsets_without_echo_begin_at_0(client: httpx.AsyncClient) -> None:
    choice = (await complete(client, prompt=UNUSUAL, logprobs=0, max_tokens=12, seed=2))["choices"][0]
    offsets = choice["logprobs"]["text_offset"]
    assert offsets[0] == 0 and offsets == sorted(offsets)
    for token, at in zip(choice["logprobs"]["tokens"], offsets, strict=True):
        assert choice["text"].startswith(token, at)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_bytes_join_the_parts_of_characters(client: httpx.AsyncClient, is_stream: bool) -> None:
    """Which have no text of their own."""
    text = "é😀 né"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "structured_outputs": {"choice": [text]}}
    body |= {"logprobs": True, "top_logprobs": 2, "stream": is_stream}
    answer = await client.post("/v1/chat/completions", json=body)
    if is_stream:
        *events, _ = answer.text.removesuffix("\n\n").split("\n\n")
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    else:
        choices = answer.json()["choices"]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    entries = [entry for entry in entries if entry["bytes"] is not None]  # without the end
    assert sum(entry["token"].startswith("token_id:") for entry in entries) >= 4, "no character has several tokens"
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == text
    for entry in entries:
        told = {likely["token"]: likely["bytes"] for likely in entry["top_logprobs"]}
        assert told.get(entry["token"], entry["bytes"]) == entry["bytes"]


async def test_usage_counts_what_best_of_did_not_choose(pair: RunningPair, client: httpx.AsyncClient) -> None:
    options: dict[str, Any] = {"prompt": [PROMPT, "import os"], "n": 1, "best_of": 3, "max_tokens": 7, "seed": 3}
    options |= {"ignore_eos": True, "num_speculative_tokens": 3}
    names = {"num_draft_tokens": "draft_tokens", "num_accepted_tokens": "accepted_tokens", "num_drafts": "drafts"}
    for is_stream in (False, True):
        tokens = counted(pair, "specpair_generation_tokens_total")
        before = {name: counted(pair, f"specpair_spec_decode_num_{name}_total") for name in names.values()}
        if is_stream:
            last = (await stream(client, **options, stream_options={"include_usage": True}))[-1]
        else:
            last = await complete(client, **options)
        assert last["usage"]["completion_tokens"] == 2 * 3 * 7
        assert counted(pair, "specpair_generation_tokens_total") - tokens == 2 * 3 * 7
        told = last["metrics"]["speculative_decoding"]
        for ours, theirs in names.items():
            assert told[ours] == counted(pair, f"specpair_spec_decode_num_{theirs}_total") - before[theirs] > 0


async def test_usage_is_null_until_it_is_known(client: httpx.AsyncClient) -> None:
    *chunks, last = await stream(client, prompt=PROMPT, ignore_eos=True, stream_options={"include_usage": True})
    assert chunks and all(chunk["usage"] is None for chunk in chunks)
    assert last["usage"]["completion_tokens"] == 4
    assert all("usage" not in chunk for chunk in await stream(client, prompt=PROMPT))


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "label"),
    [
        ("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 1}', 200, "/v1/completions"),
        ("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 1, "stream": true}', 200, "/v1/completions"),
        ("POST", "/v1/completions", "{", 400, "/v1/completions"),
        ("POST", "/v1/completions", '{"prompt": "x", "model": "other"}', 404, "/v1/completions"),
        ("POST", "/v1/chat/completions", '{"messages": []}', 400, "/v1/chat/completions"),
        ("POST", "/v1/responses", '{"input": "x", "max_output_tokens": 1}', 200, "/v1/responses"),
        ("GET", "/v1/responses/resp_1", "", 404, "other"),
        ("GET", "/v1/completions", "", 405, "/v1/completions"),
        ("GET", "/v1/models/no/such", "", 404, "/v1/models/{model}"),
        ("GET", "/v1/nothing", "", 404, "other"),
        ("POST", "/v1/nothing", "", 404, "other"),
        ("HEAD", "/health", "", 200, "/health"),
        ("GET", "/health", "", 200, "/health"),
    ],
)
async def test_every_request_is_counted(
    pair: RunningPair, client: httpx.AsyncClient, method: str, path: str, content: str, status: int, label: str
) -> None:
    labels = {"path": label, "status": str(status)}
    before, all_before = counted(pair, COUNTER, **labels), counted(pair, COUNTER)
    answer = await client.request(method, path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert counted(pair, COUNTER, **labels) == before + 1
    assert counted(pair, COUNTER) == all_before + 1


async def test_our_own_mistakes_are_counted(
    pair: RunningPair, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise RuntimeError

    labels = {"path": "/v1/completions", "status": "500"}
    before = counted(pair, COUNTER, **labels)
    monkeypatch.setattr("coordinator.serving.serving.score_prompt", fail)
    assert (await client.post("/v1/completions", json={"prompt": PROMPT})).status_code == 500
    assert counted(pair, COUNTER, **labels) == before + 1


@pytest.mark.parametrize("is_stream", [False, True])
async def test_clients_that_leave_are_counted(pair: RunningPair, client: httpx.AsyncClient, is_stream: bool) -> None:
    """499 where nothing was answered yet; a stream of which something came was a success to begin with."""
    labels = {"path": "/v1/completions", "status": "200" if is_stream else "499"}
    before = counted(pair, COUNTER, **labels)
    body = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": is_stream}
    async with asyncio.timeout(30):
        if is_stream:
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                await anext(answer.aiter_lines())
        else:
            asking = asyncio.create_task(client.post("/v1/completions", json=body))
            while not len(pair.target.host.sequences):
                await asyncio.sleep(0.005)
            asking.cancel()
        while counted(pair, COUNTER, **labels) == before:
            await asyncio.sleep(0.01)
    assert counted(pair, COUNTER, **labels) == before + 1
    await pair.check_clean()


async def test_clients_that_leave_with_half_a_body_are_counted(pair: RunningPair) -> None:
    """Not as ones whose body was wrong."""
    labels = {"path": "/v1/completions"}
    left, all_of_them = counted(pair, COUNTER, **labels, status="499"), counted(pair, COUNTER, **labels)
    _, writer = await asyncio.open_connection(*pair.http_address.split(":"))
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    async with asyncio.timeout(30):
        while counted(pair, COUNTER, **labels) == all_of_them:
            await asyncio.sleep(0.01)
    assert counted(pair, COUNTER, **labels, status="499") == left + 1


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org:80", "coordinator:8000"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/models"])
async def test_other_names_get_no_answer(client: httpx.AsyncClient, host: str, path: str) -> None:
    """As a page sends them whose site had its name point here."""
    answer = await client.get(path, headers={"host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "unknown_host")


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "10.0.0.7"])
async def test_own_names_get_one(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/models", headers={"host": host})).status_code == 200


async def test_several_prompts_get_their_places_together_or_not_at_all() -> None:
    """Of two prompts where one place is left, none is begun."""
    async with running_bundled_pair(max_requests=3, max_queued_requests=0) as pair, http_client(pair) as client:
        long = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "n": 2, "stream": True}
        two = {"prompt": [PROMPT, PROMPT], "max_tokens": 2}
        async with client.stream("POST", "/v1/completions", json=long) as running:
            lines = running.aiter_lines()  # closed, it would end the request
            await anext(lines)
            before = counted(pair, "specpair_prompt_tokens_total")
            for is_stream in (False, True):
                answer = await client.post("/v1/completions", json={**two, "stream": is_stream})
                assert answer.status_code == 429
            assert counted(pair, "specpair_prompt_tokens_total") == before
            assert counted(pair, "specpair_requests_total", outcome="failed") == 2 * 2
            assert (await client.post("/v1/completions", json={**two, "prompt": [PROMPT]})).status_code == 200
        await pair.check_clean()
        assert (await client.post("/v1/completions", json=two)).status_code == 200


async def test_a_prompt_that_fails_cancels_the_others_of_its_body(pair: RunningPair, client: httpx.AsyncClient) -> None:
    """So `cancelled` does not always mean that a client left."""

    def outcomes() -> dict[str, float]:
        names = ("finished", "failed", "cancelled")
        return {name: counted(pair, "specpair_requests_total", outcome=name) for name in names}

    before = outcomes()
    body = {"prompt": [[5] * 4, [999_999], [6] * 4], "max_tokens": 500, "ignore_eos": True}
    assert (await client.post("/v1/completions", json=body)).status_code == 400
    assert {name: count - before[name] for name, count in outcomes().items()} == {
        "finished": 0,
        "failed": 1,
        "cancelled": 2,
    }
