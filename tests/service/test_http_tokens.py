"""/tokenize, /detokenize and /version, as clients of vLLM use them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpair.security.settings import ServerSecurity
from specpair.version import package_version
from tests.http_service import PROMPT, http_client, running_bundled_pair
from tests.services import PairSecurity, RunningPair

USER: dict[str, Any] = {"role": "user", "content": "Hi"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "def f("}
TOOL = {"type": "function", "function": {"name": "f"}}
LIMIT = 2048 * 64
"""More characters than fit the bundled target."""


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=2, max_queued_requests=0) as pair:
        yield pair
        await pair.check_clean()


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("text", [PROMPT, "", "naïve ☕ \U0001f600", "<|endoftext|>a", PROMPT * 60])
async def test_a_text_and_its_tokens(pair: RunningPair, client: httpx.AsyncClient, text: str) -> None:
    tokenizer = pair.front_end.serving.pair.target.tokenizer
    assert tokenizer is not None
    found = await post(client, "/tokenize", prompt=text, return_token_strs=True, model="target")
    assert found == {
        "count": len(found["tokens"]),
        "max_model_len": pair.target.host.info().max_model_len,
        "tokens": tokenizer.encode(text),
        "token_strs": [tokenizer.vocabulary()[token_id] for token_id in found["tokens"]],
    }
    assert (await post(client, "/tokenize", prompt=text))["token_strs"] is None
    assert await post(client, "/detokenize", tokens=found["tokens"]) == {"prompt": text}


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ({"messages": [USER]}, "# user: Hi\n# assistant:"),
        ({"messages": [USER], "add_generation_prompt": False}, "# user: Hi\n"),
        ({"messages": [USER, ASSISTANT], "continue_final_message": True}, "# user: Hi\n# assistant: def f("),
        ({"messages": [USER], "chat_template_kwargs": {"x": 1}, "tools": [TOOL]}, "# user: Hi\n# assistant:"),
    ],
)
async def test_a_conversation_and_its_tokens(client: httpx.AsyncClient, layout: dict[str, Any], text: str) -> None:
    found = await post(client, "/tokenize", **layout)
    assert found == await post(client, "/tokenize", prompt=text, add_special_tokens=False)
    completion = await post(client, "/v1/chat/completions", max_tokens=1, **layout)
    assert completion["usage"]["prompt_tokens"] == found["count"]


async def test_a_text_that_does_not_fit_the_model_is_counted(client: httpx.AsyncClient) -> None:
    found = await post(client, "/tokenize", prompt="x = 1\n" * 2000)
    assert found["count"] == len(found["tokens"]) > found["max_model_len"]


@pytest.mark.parametrize(
    ("path", "body", "parameter", "words"),
    [
        ("/tokenize", {}, "prompt", "is missing"),
        ("/tokenize", {"prompt": "a", "messages": [USER]}, "messages", "cannot be combined with prompt"),
        ("/tokenize", {"prompt": [1]}, "prompt", "string"),
        ("/tokenize", {"prompt": "\ud800"}, "prompt", "surrogate"),
        ("/tokenize", {"prompt": "a" * LIMIT}, "prompt", "can fit the model"),
        ("/tokenize", {"messages": [{**USER, "content": "a" * LIMIT}]}, "messages", "can fit the model"),
        ("/tokenize", {"messages": []}, "messages", "between 1 and"),
        ("/tokenize", {"messages": [USER] * 5000}, "messages", "at most 4096"),
        ("/tokenize", {"messages": [USER], "continue_final_message": True}, "continue_final_message", "assistant"),
        (
            "/tokenize",
            {"messages": [USER], "chat_template_kwargs": {"x": "y" * 20_000}},
            "chat_template_kwargs",
            "16384",
        ),
        ("/detokenize", {}, "tokens", "required"),
        ("/detokenize", {"tokens": "a"}, "tokens", "list"),
        ("/detokenize", {"tokens": [-1]}, "tokens", "greater than or equal to 0"),
        ("/detokenize", {"tokens": [4096]}, "tokens", "holds 4096; ids are below 4096"),
        ("/detokenize", {"tokens": [2**32]}, "tokens", "less than or equal"),
        ("/detokenize", {"tokens": [5] * 500_000}, "tokens", "has 500000 entries; at most"),
    ],
)
async def test_refusals_name_the_parameter(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], parameter: str, words: str
) -> None:
    answer = await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, parameter, "invalid_request_error")
    assert words in error["message"] and len(error["message"]) < 500


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})])
async def test_the_limits_are_those_of_other_requests(
    pair: RunningPair, client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await client.post(path, json={**body, "model": "other"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert (await client.post(path, json={**body, "x": "a" * 5_000_000})).status_code == 413
    async with pair.front_end.serving.admission.enter(2):
        answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(answer.headers["retry-after"]) >= 1
    await post(client, path, **body)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("encode", "/tokenize", {"prompt": "a"}),
        ("chat_text", "/tokenize", {"messages": [USER]}),
        ("strings", "/tokenize", {"prompt": "a", "return_token_strs": True}),
        ("whole_text", "/detokenize", {"tokens": [5]}),
    ],
)
async def test_others_have_their_turns_meanwhile(
    pair: RunningPair, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    tokenizer = pair.front_end.serving.pair.target.tokenizer
    quick = getattr(tokenizer, method)

    def slow(*values: Any, **options: Any) -> Any:
        time.sleep(1)
        return quick(*values, **options)

    monkeypatch.setattr(tokenizer, method, slow)
    answer, longest = asyncio.create_task(post(client, path, **body)), 0.0
    while not answer.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - start)
    await answer
    assert longest < 0.8


async def test_the_version(pair: RunningPair, client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json() == {"version": package_version()}
    counted = (await client.get("/metrics")).text
    for path in ("/version", "/tokenize", "/detokenize"):
        assert f'specpair_http_requests_total{{path="{path}",status="200"}}' in counted


async def test_strangers_learn_nothing(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:alice-has-this-token\n")
    security = PairSecurity(coordinator=ServerSecurity(tokens_file=str(tokens)))
    async with running_bundled_pair(security=security) as pair, http_client(pair) as client:
        for headers, status in (({}, 401), ({"authorization": "Bearer alice-has-this-token"}, 200)):
            answers = [
                await client.post("/tokenize", json={"prompt": "a"}, headers=headers),
                await client.post("/detokenize", json={"tokens": [5]}, headers=headers),
                await client.get("/version", headers=headers),
            ]
            assert [answer.status_code for answer in answers] == [status] * 3
