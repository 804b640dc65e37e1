"""Structured outputs and tools by OpenAI's own client, unchanged, over the real services of the bundled pair."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from tests.http_service import openai_client, running_bundled_pair

MODEL = "target"
MESSAGES: list[Any] = [{"role": "user", "content": "List the parts of a bicycle."}]


class Part(BaseModel):
    name: str = Field(max_length=12)
    count: int = Field(ge=0, le=20)


class Answer(BaseModel):
    """What the model has to write."""

    mood: Literal["good", "bad"]
    parts: list[Part] = Field(max_length=2)


class Weather(BaseModel):
    """Says the weather of a city."""

    city: Literal["Oslo", "Rome"]
    days: int = Field(ge=1, le=7)


WEATHER: Any = openai.pydantic_function_tool(Weather, name="weather")
CLOCK: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "maxProperties": 0}}}


def allowed(*names: str, mode: str = "auto") -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with running_bundled_pair() as pair, openai_client(pair) as client:
        yield client
        await pair.check_clean()


async def test_parse_helper_gives_the_model_s_own_class(client: AsyncOpenAI) -> None:
    for seed in range(4):
        answer = await client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=Answer, seed=seed, max_tokens=300
        )
        (choice,) = answer.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Answer)


async def test_json_object(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=300, temperature=0
    )
    content = answer.choices[0].message.content
    assert content is not None
    assert content.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content), dict)


async def test_json_object_with_llama_cpps_schema(client: AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    }
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        response_format={"type": "json_object", "schema": schema},  # type: ignore[typeddict-unknown-key, call-overload]
        max_tokens=300,
    )
    content = answer.choices[0].message.content
    assert content is not None and list(json.loads(content)) == ["on"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"structured_outputs": {"regex": "[a-c]{3}x"}}, "[a-c]{3}x"),
        ({"structured_outputs": {"grammar": 'start: "a" DIGITS "."\nDIGITS: /[0-9]{1,3}/'}}, r"a[0-9]{1,3}\."),
        ({"structured_outputs": {"json": {"enum": [1, 22]}}}, "1|22"),
        ({"structured_outputs": {"json": '{"enum": [1, 22]}'}}, "1|22"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_regex": "[a-c]{3}x"}, "[a-c]{3}x"),
        ({"guided_grammar": 'start: "ab"'}, "ab"),
        ({"guided_json": {"const": "ö"}}, '"ö"'),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 5}}}}, "5"),
    ],
)
async def test_vllm_s_names(client: AsyncOpenAI, body: dict[str, Any], expected: str) -> None:
    answer = await client.completions.create(model=MODEL, prompt="Say ", extra_body=body, max_tokens=100, n=2)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(expected, choice.text), choice.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"guided_regex": "("}, "regex"),
        ({"guided_regex": "a", "guided_json": {}}, "cannot be combined"),
        ({"structured_outputs": {}}, "needs one"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "needs one"),
        ({"guided_choice": []}, "count"),
        ({"guided_choice": [""]}, "empty"),
        ({"guided_regex": "a" * 65537}, "65536"),
        ({"guided_json": {"type": "nonsense"}}, "guided_json"),
        ({"guided_json": {"$ref": "#"}}, "allows no text"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"guided_regex": "a", "min_tokens": 3}, "min_tokens"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"tools": [WEATHER, WEATHER]}, "one name"),
        ({"tool_choice": "required"}, "no tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "none of the tools"),
        ({"tools": [WEATHER], "tool_choice": allowed("weather", "x")}, "names 'x', which is none of the tools"),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "cannot be combined"),
    ],
)
async def test_what_cannot_be_used_is_refused(client: AsyncOpenAI, body: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5, extra_body=body)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"guided_json": {"type": "nonsense"}}, "guided_json"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_grammar": "start: nothing"}, "guided_grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_json": ""}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_grammar": ""}, "guided_grammar"),
        ({"guided_regex": "", "ebnf": ""}, "guided_regex"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "x"}}}},
            "response_format",
        ),
        ({"tools": [{"type": "function", "function": {"name": "x", "parameters": {"type": "x"}}}]}, "tools"),
    ],
)
async def test_a_refusal_names_the_parameter_that_was_sent(
    client: AsyncOpenAI, body: dict[str, Any], parameter: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=5, stream=stream, extra_body=body
            )
        assert caught.value.param == parameter
        assert parameter in caught.value.message


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"tools": [CLOCK]}, "tools"),
    ],
)
@pytest.mark.parametrize(
    "other", [{"min_tokens": 3}, {"ignore_eos": True}, {"allowed_token_ids": [5]}, {"banned_token_ids": [5]}]
)
async def test_a_refusal_names_both_parameters_that_were_sent(
    client: AsyncOpenAI, structure: dict[str, Any], name: str, other: dict[str, Any]
) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 5, **structure, **other}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.post("/chat/completions", body=body, cast_to=dict)
    (parameter,) = other
    expected = f"{parameter}: cannot be combined with {name}, which may allow no other token"
    assert isinstance(caught.value.body, dict)
    assert (caught.value.param, caught.value.body["message"]) == (parameter, expected)


async def test_a_required_tool_is_called_with_arguments_that_fit(client: AsyncOpenAI) -> None:
    options: Any = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400}
    for seed in range(4):
        answer = await client.chat.completions.parse(model=MODEL, messages=MESSAGES, seed=seed, **options)
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert choice.message.tool_calls
        for call in choice.message.tool_calls:
            assert (call.type, call.function.name) == ("function", "weather")
            assert isinstance(call.function.parsed_arguments, Weather)


async def test_a_named_tool_is_called_once(client: AsyncOpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "clock"}}
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=[WEATHER, CLOCK], tool_choice=named, max_tokens=200
    )
    calls: list[Any] = list(answer.choices[0].message.tool_calls or ())
    (call,) = calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("clock", {})


async def test_only_allowed_tools_are_called(client: AsyncOpenAI) -> None:
    date: Any = {"type": "function", "function": {"name": "date", "parameters": CLOCK["function"]["parameters"]}}
    options: Any = {"model": MODEL, "messages": MESSAGES, "tools": [WEATHER, CLOCK, date], "max_tokens": 200}
    called = set()
    for seed in range(6):
        answer = await client.chat.completions.create(
            **options, tool_choice=allowed("clock", "date", mode="required"), seed=seed
        )
        called |= {call.function.name for call in list[Any](answer.choices[0].message.tool_calls or ())}
    assert called == {"clock", "date"}
    options["max_tokens"] = 12
    free = await client.chat.completions.create(**options, tool_choice=allowed("clock", "date"), temperature=0)
    assert free.choices[0].message.content and free.choices[0].message.tool_calls is None


async def test_a_format_that_is_no_restriction_is_a_note_in_a_tool_too(client: AsyncOpenAI) -> None:
    """As pydantic writes it for a path."""
    path = {"type": "string", "format": "path", "maxLength": 8}
    schema = {"type": "object", "properties": {"format": path}, "required": ["format"], "additionalProperties": False}
    tool: Any = {"type": "function", "function": {"name": "open", "parameters": schema}}
    options: Any = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400}
    answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=1, **options)
    (call,) = list[Any](answer.choices[0].message.tool_calls or ())
    assert call.type == "function"
    assert list(json.loads(call.function.arguments)) == ["format"]


async def test_calls_in_a_stream_are_those_of_the_whole_answer(client: AsyncOpenAI) -> None:
    options: Any = {
        **{"model": MODEL, "messages": MESSAGES, "tools": [WEATHER, CLOCK], "tool_choice": "required"},
        **{"seed": 5, "max_tokens": 400, "n": 2, "extra_body": {"num_speculative_tokens": 4}},
    }
    whole = await client.chat.completions.create(**options)
    found: list[dict[int, list[str]]] = [{}, {}]
    reasons = ["", ""]
    async for chunk in await client.chat.completions.create(**options, stream=True):
        for choice in chunk.choices:
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                entry = found[choice.index].setdefault(call.index, [call.function.name or "", ""])
                entry[1] += call.function.arguments or ""
    for choice, streamed, reason in zip(whole.choices, found, reasons, strict=True):
        calls: list[Any] = list(choice.message.tool_calls or ())
        assert len(calls) > 1
        assert [[call.function.name, call.function.arguments] for call in calls] == list(streamed.values())
        assert reason == choice.finish_reason


async def test_without_being_forced_the_model_may_answer_in_words(client: AsyncOpenAI) -> None:
    for choice in ("auto", "none"):
        answer = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, tools=[WEATHER], tool_choice=choice, max_tokens=12, temperature=0
        )
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].message.content


async def test_a_conversation_may_have_calls_and_their_answers(client: AsyncOpenAI) -> None:
    call: Any = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], max_tokens=4)
    assert answer.choices[0].finish_reason in ("length", "stop")
