"""Calls of tools in each form that models write, over the real services of a model that writes what is wanted."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.tool_call_form import ToolCallParser
from tests.http_service import http_client
from tests.scripted_models import END, chat_body, make_scripted_model
from tests.services import RunningPair, engine_config, running_pair

MARK = "[TOOL_CALLS]"
SCRIPTS = {
    "#": ["Sure.\n", MARK, " [{", '"name": "', END],
    "=": ["Well", "[TOOL", "_CALLS][", '{"name', '": "', END],
    "@": [" ", '{"na', 'me": "', END],
    "\t": ["Hello", ' {"name": "', "x", END],
    "$": ["Look:", " <tool_", "call>", END],
    "%": ["<think>", "hm", "</think>\n", "Aha", END],
}
OPENINGS = {"hermes": "$", "llama3_json": "@", "mistral": "#"}
SCHEMA = {
    **{"type": "object", "required": ["}, {"], "additionalProperties": False},
    "properties": {"}, {": {"const": [{"name": 'a"}]'}]}},
}
"""Its one value looks as if calls ended in it."""
ARGUMENTS = {"}, {": [{"name": 'a"}]'}]}
TOOL: Any = {"type": "function", "function": {"name": "clock", "parameters": SCHEMA}}
OTHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
Call = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
async def pairs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningPair]]:
    folder: Path = make_scripted_model(tmp_path_factory.mktemp("calling"), SCRIPTS, (MARK, "<think>"))
    config = engine_config(folder)
    options: Any = {"num_speculative_tokens": 3, "reasoning_parser": "qwen3"}
    async with (
        running_pair(config, config, tool_call_parser="hermes", **options) as hermes,
        running_pair(config, config, tool_call_parser="llama3_json", **options) as llama3_json,
        running_pair(config, config, tool_call_parser="mistral", **options) as mistral,
    ):
        yield {"hermes": hermes, "llama3_json": llama3_json, "mistral": mistral}
        for pair in (hermes, llama3_json, mistral):
            await pair.check_clean()


async def whole(pair: RunningPair, body: dict[str, Any]) -> tuple[str | None, list[Call], str]:
    """Content, calls and finish reason of the one choice."""
    async with http_client(pair) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    calls = choice["message"].get("tool_calls", [])
    found = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    return choice["message"]["content"], found, choice["finish_reason"]


async def streamed(pair: RunningPair, body: dict[str, Any]) -> tuple[str | None, list[Call], str]:
    """The same from the chunks of a stream."""
    async with http_client(pair) as client:
        answer = await client.post("/v1/chat/completions", json={**body, "stream": True})
    text, reason, found = "", "", dict[int, list[str]]()
    for line in answer.text.splitlines():
        if not line.startswith("data: {"):
            continue
        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
        text += choice["delta"].get("content") or ""
        reason = choice["finish_reason"] or reason
        for call in choice["delta"].get("tool_calls", ()):
            function = call["function"]
            entry = found.setdefault(call["index"], [call.get("id", ""), function.get("name", ""), ""])
            entry[2] += function["arguments"]
    calls = [(call_id, name, json.loads(arguments)) for call_id, name, arguments in found.values()]
    return text or None, calls, reason


@pytest.mark.parametrize("parser", ToolCallParser)
@pytest.mark.parametrize("read", [whole, streamed])
async def test_a_model_that_must_call_does_so_in_its_form(
    pairs: dict[str, RunningPair], parser: str, read: Any
) -> None:
    body = chat_body("\t", tools=[TOOL, OTHER], tool_choice={"type": "function", "function": {"name": "clock"}})
    content, calls, reason = await read(pairs[parser], {**body, "max_tokens": 400})
    assert (content, [call[1:] for call in calls], reason) == (None, [("clock", ARGUMENTS)], "tool_calls")


@pytest.mark.parametrize(("parser", "most"), [("hermes", 16), ("llama3_json", 1), ("mistral", 16)])
@pytest.mark.parametrize("read", [whole, streamed])
async def test_several_calls_come_where_the_form_has_them(
    pairs: dict[str, RunningPair], parser: str, most: int, read: Any
) -> None:
    """The model does not end of itself where it may go on with another call: `,` comes before `]` among its tokens."""
    body = chat_body("}", tools=[OTHER], tool_choice="required", max_tokens=1500, logit_bias={"0": -100})
    body["tools"][0]["function"]["parameters"] = {"type": "object", "maxProperties": 0}
    _, calls, _ = await read(pairs[parser], body)
    assert [call[1:] for call in calls] == [("weather", {})] * most
    assert len({call[0] for call in calls}) == most


@pytest.mark.parametrize(
    ("parser", "opening", "text"),
    [
        ("hermes", "$", "Look:"),
        ("llama3_json", "@", None),
        ("mistral", "#", "Sure."),
        ("mistral", "=", "Well"),  # the mark spelled, not by its token
    ],
)
@pytest.mark.parametrize("read", [whole, streamed])
async def test_a_model_may_call_after_its_text(
    pairs: dict[str, RunningPair], parser: str, opening: str, text: str | None, read: Any
) -> None:
    body = chat_body(opening, tools=[TOOL, OTHER], parallel_tool_calls=False, max_tokens=400)
    content, calls, reason = await read(pairs[parser], body)
    assert (content, [call[1:] for call in calls], reason) == (text, [("clock", ARGUMENTS)], "tool_calls")


@pytest.mark.parametrize("read", [whole, streamed])
async def test_a_whole_answer_is_a_call_only_from_its_beginning(pairs: dict[str, RunningPair], read: Any) -> None:
    content, calls, reason = await read(pairs["llama3_json"], chat_body("\t", tools=[TOOL]))
    assert (content, calls, reason) == ('Hello {"name": "x', [], "stop")


@pytest.mark.parametrize(("stop", "reason"), [('":[{"', "stop"), ("</tool_call>", "tool_calls"), ('"clock"', "stop")])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_that_a_stop_string_cut_off_is_no_call_to_make(
    pairs: dict[str, RunningPair], stop: str, reason: str, is_stream: bool
) -> None:
    """Unless its arguments are whole."""
    body = chat_body("\t", tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=400)
    async with http_client(pairs["hermes"]) as client:
        answer = await client.post("/v1/chat/completions", json={**body, "stop": stop, "stream": is_stream})
    assert re.findall(r'"finish_reason":\s*"(\w+)"', answer.text) == [reason]


@pytest.mark.parametrize("parser", ToolCallParser)
@pytest.mark.parametrize("read", [whole, streamed])
async def test_a_part_of_a_tag_is_no_text_where_a_call_must_stand(
    pairs: dict[str, RunningPair], parser: str, read: Any
) -> None:
    """The model is cut off after any of the tokens with which it begins its call. Before them it reasons."""
    for tool_choice in ("required", {"type": "function", "function": {"name": "clock"}}):
        for count in (4, 5, 8, 12):
            body = chat_body("\t", tools=[TOOL], tool_choice=tool_choice, max_tokens=count)
            assert await read(pairs[parser], body) == (None, [], "length"), count


async def test_after_a_call_that_it_must_make_a_part_of_a_tag_is_no_text(pairs: dict[str, RunningPair]) -> None:
    """Of the next call, which the length or a stop string cut off."""
    body = chat_body("\t", tools=[TOOL], tool_choice="required", logit_bias={"0": -100})
    stopped = {"max_tokens": 400, "stop": "tool_call>\n<tool"}
    for end, expected in (({"max_tokens": 95}, "length"), (stopped, "tool_calls")):
        for read in (whole, streamed):
            content, calls, reason = await read(pairs["hermes"], {**body, **end})
            assert (content, [call[1:] for call in calls], reason) == (None, [("clock", ARGUMENTS)], expected)


async def test_ids_have_the_length_that_templates_ask_for(pairs: dict[str, RunningPair]) -> None:
    for parser, length in (("hermes", 29), ("mistral", 9)):
        body = chat_body("\t", tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=400)
        _, ((call_id, *_),), _ = await whole(pairs[parser], body)
        assert len(call_id) == length


async def test_a_model_may_write_the_space_that_its_tokens_begin_with(pairs: dict[str, RunningPair]) -> None:
    async with http_client(pairs["mistral"]) as client:
        body = chat_body("#", tools=[TOOL], logprobs=True, parallel_tool_calls=False, max_tokens=400)
        (choice,) = (await client.post("/v1/chat/completions", json=body)).json()["choices"]
    assert choice["logprobs"]["content"][2]["token"] == " [{"
    assert choice["finish_reason"] == "tool_calls"


async def test_special_tokens_are_shown_only_where_a_part_of_the_answer_begins(pairs: dict[str, RunningPair]) -> None:
    assert await whole(pairs["mistral"], chat_body("#", tools=[TOOL], tool_choice="none")) == (
        'Sure.\n [{"name": "',
        [],
        "stop",
    )
    async with http_client(pairs["mistral"]) as client:
        answer = await client.post("/v1/completions", json={"prompt": "%", "temperature": 0, "max_tokens": 20})
    assert answer.json()["choices"][0]["text"] == "hm</think>\nAha"


@pytest.mark.parametrize("structure", [{}, {"guided_regex": "A[a-z]*"}])
async def test_a_tag_may_be_a_special_token(pairs: dict[str, RunningPair], structure: dict[str, Any]) -> None:
    async with http_client(pairs["hermes"]) as client:
        answer = await client.post("/v1/chat/completions", json=chat_body("%", **structure))
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("hm", "Aha")
