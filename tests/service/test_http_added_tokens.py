"""Models whose tags and marks are tokens of their own that are not special, as those of Qwen and DeepSeek are."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http_service import http_client
from tests.scripted_models import END, chat_body, make_scripted_model
from tests.services import engine_config, running_pair

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SCRIPTS = {
    "%": ["<think>", "hm", "<musing>", "ok", "</think>", "Aha", END],
    "$": ["Look:", "<tool_call>", END],
    "+": ["Oh ", "<note>", "dear", END],
    "^": ["Hm", "<aside>", "so", "<tool_call>", END],
    "&": ["</tool_call>", "and", "<tool_call>", END],
}
TOOL: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "maxProperties": 0}}}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    folder = make_scripted_model(
        tmp_path_factory.mktemp("added"), SCRIPTS, added=(*MARKS, "<note>", "<aside>", "<musing>")
    )
    config = engine_config(folder)
    async with (
        running_pair(config, config, num_speculative_tokens=3, reasoning_parser="qwen3") as pair,
        http_client(pair) as client,
    ):
        yield client
        await pair.check_clean()


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The message of the one choice, and the texts of all tokens."""
    answer = await client.post("/v1/chat/completions", json={**body, "logprobs": True})
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    return choice["message"], [entry["token"] for entry in choice["logprobs"]["content"]]


@pytest.mark.parametrize("others", [{}, {"guided_regex": "A[a-z]*"}, {"tools": [TOOL]}])
async def test_reasoning_has_its_own_tokens(client: httpx.AsyncClient, others: dict[str, Any]) -> None:
    message, tokens = await ask(client, chat_body("%", **others))
    assert (message["reasoning_content"], message["content"]) == ("hm<musing>ok", "Aha")
    assert tokens[:6] == ["<think>", "hm", "<musing>", "ok", "</think>", "Aha"]


@pytest.mark.parametrize("is_parallel", [True, False])
async def test_a_text_beside_calls_may_have_other_added_tokens(client: httpx.AsyncClient, is_parallel: bool) -> None:
    message, tokens = await ask(client, chat_body("+", tools=[TOOL], parallel_tool_calls=is_parallel))
    assert (message["content"], tokens[:3]) == ("Oh <note>dear", ["Oh ", "<note>", "dear"])


@pytest.mark.parametrize("is_parallel", [True, False])
async def test_a_call_may_come_after_them(client: httpx.AsyncClient, is_parallel: bool) -> None:
    body = chat_body("^", tools=[TOOL], parallel_tool_calls=is_parallel, max_tokens=60)
    message, _ = await ask(client, body)
    assert message["content"].startswith("Hm<aside>so")
    assert message["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}


async def test_calls_have_their_own_tokens(client: httpx.AsyncClient) -> None:
    """Also those that end them. The model goes on with a word and the next call, and finds no end."""
    message, tokens = await ask(client, chat_body("$", tools=[TOOL], max_tokens=150))
    assert message["content"].startswith("Look:and")
    assert {call["function"]["name"] for call in message["tool_calls"]} == {"clock"}
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {}
    marks = [token for token in tokens if token in MARKS]
    assert len(marks) > 2 and marks[::2] == ["<tool_call>"] * len(marks[::2])
    assert marks[1::2] == ["</tool_call>"] * len(marks[1::2])


async def test_one_call_at_most_is_one_call(client: httpx.AsyncClient) -> None:
    body = chat_body("$", tools=[TOOL], parallel_tool_calls=False, max_tokens=150)
    message, tokens = await ask(client, body)
    assert (message["content"], len(message["tool_calls"])) == ("Look:", 1)
    assert [token for token in tokens if token in MARKS] == ["<tool_call>", "</tool_call>"]
