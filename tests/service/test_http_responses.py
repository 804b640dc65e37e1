"""OpenAI's Responses API by its own client, over the real services of the bundled pair: what chat says, in items."""

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import BaseModel, Field

from tests.http_service import openai_client, running_bundled_pair

MODEL = "target"
LOGPROBS: Any = ["message.output_text.logprobs"]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}


class Answer(BaseModel):
    """What the model has to write."""

    mood: Literal["good", "bad"]
    parts: list[str] = Field(max_length=2)


class Weather(BaseModel):
    """Says the weather of a city."""

    city: Literal["Oslo", "Rome"]
    days: int = Field(ge=1, le=7)


WEATHER: Any = openai.pydantic_function_tool(Weather, name="weather")
SCHEMA: Any = {"type": "object", "maxProperties": 0}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": SCHEMA, "strict": True}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with running_bundled_pair() as pair, openai_client(pair) as client:
        yield client
        await pair.check_clean()


def conforms(response: Response) -> None:
    """OpenAI's client takes any document; its types say what it may be."""
    Response.model_validate(response.to_dict())


async def test_a_text_is_answered_as_in_chat(client: AsyncOpenAI) -> None:
    response = await client.responses.create(**GREEDY, input="def read_lines", max_output_tokens=12)
    messages: Any = [{"role": "user", "content": "def read_lines"}]
    chat = await client.chat.completions.create(**GREEDY, messages=messages, max_tokens=12)
    conforms(response)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage is not None and chat.usage is not None
    used = response.usage
    assert (used.input_tokens, used.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert used.total_tokens == chat.usage.total_tokens
    assert (used.input_tokens_details.cached_tokens, used.output_tokens_details.reasoning_tokens) == (0, 0)


async def test_a_conversation_is_answered_as_in_chat(client: AsyncOpenAI) -> None:
    """With instructions, parts, and all that an answer may have been before; a second answer takes the first one in."""
    items: list[Any] = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "What "}, {"type": "input_text", "text": "is it?"}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "noon"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noon."}]},
        {"role": "user", "content": "And now?"},
    ]
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        {"role": "assistant", "content": "Noon."},
        {"role": "user", "content": "And now?"},
    ]
    for _ in range(2):
        response = await client.responses.create(**GREEDY, instructions="Be brief.", input=items, max_output_tokens=10)
        chat = await client.chat.completions.create(**GREEDY, messages=messages, max_tokens=10)
        conforms(response)
        assert response.output_text == chat.choices[0].message.content
        assert response.usage is not None and chat.usage is not None
        assert response.usage.input_tokens == chat.usage.prompt_tokens
        more = {"role": "user", "content": "Go on."}
        items += [*(item.to_dict() for item in response.output), more]
        messages += [{"role": "assistant", "content": chat.choices[0].message.content}, more]


async def test_what_a_response_says_of_its_request(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL,
        input="x",
        instructions="Be brief.",
        max_output_tokens=3,
        metadata={"case": "7"},
        store=True,
        temperature=0.5,
        top_p=0.9,
        tools=[CLOCK],
        tool_choice={"type": "function", "name": "clock"},
        parallel_tool_calls=False,
        truncation="disabled",
        user="me",
        extra_headers={"x-request-id": "my-request"},
    )
    conforms(response)
    assert response.id == "resp_my-request" and response.model == MODEL
    assert (response.instructions, response.metadata, response.user) == ("Be brief.", {"case": "7"}, "me")
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, 3)
    assert [tool.to_dict() for tool in response.tools] == [{**CLOCK, "description": None}]
    assert response.tool_choice.to_dict() == {"type": "function", "name": "clock"}  # type: ignore[union-attr]
    assert (response.parallel_tool_calls, response.truncation, response.error) == (False, "disabled", None)
    assert (response.model_extra or {})["store"] is False
    assert response.previous_response_id is None


@pytest.mark.parametrize(("stop", "status"), [("\n", "completed"), (None, "incomplete")])
async def test_an_output_that_is_cut_off_is_incomplete(client: AsyncOpenAI, stop: str | None, status: str) -> None:
    bias = {"199": 100}  # a line break
    response = await client.responses.create(
        **GREEDY, input="x", max_output_tokens=5, extra_body={"stop": stop, "logit_bias": bias}
    )
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage)
    assert (response.status, message.status) == (status, status)
    if status == "completed":
        assert (response.output_text, response.incomplete_details) == ("", None)
        assert response.completed_at is not None and response.completed_at >= response.created_at
    else:
        assert response.incomplete_details is not None and response.completed_at is None
        assert (response.output_text, response.incomplete_details.reason) == ("\n" * 5, "max_output_tokens")


@pytest.mark.parametrize(
    "asked", [{"include": LOGPROBS}, {"top_logprobs": 3}, {"include": LOGPROBS, "top_logprobs": 2}]
)
async def test_logprobs_are_those_of_chat(client: AsyncOpenAI, asked: dict[str, Any]) -> None:
    response = await client.responses.create(**GREEDY, input="x", max_output_tokens=6, **asked)
    conforms(response)
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage) and isinstance(message.content[0], ResponseOutputText)
    top = asked.get("top_logprobs", 0)
    chat = await client.chat.completions.create(
        **GREEDY, messages=[{"role": "user", "content": "x"}], max_tokens=6, logprobs=True, top_logprobs=top
    )
    expected = chat.choices[0].logprobs
    assert expected is not None and expected.content is not None and message.content[0].logprobs is not None
    assert [entry.token for entry in message.content[0].logprobs] == [entry.token for entry in expected.content]
    assert [entry.logprob for entry in message.content[0].logprobs] == pytest.approx(
        [entry.logprob for entry in expected.content], abs=1e-3
    )
    assert {len(entry.top_logprobs) for entry in message.content[0].logprobs} == {top}
    assert response.top_logprobs == top
    without = await client.responses.create(**GREEDY, input="x", max_output_tokens=6)
    assert without.output[0].to_dict()["content"][0]["logprobs"] == []  # type: ignore[index]


async def test_parse_helper_gives_the_model_s_own_class(client: AsyncOpenAI) -> None:
    for seed in range(4):
        response = await client.responses.parse(
            model=MODEL, input="How are you?", text_format=Answer, max_output_tokens=300, extra_body={"seed": seed}
        )
        conforms(response)
        assert response.status == "completed"
        assert isinstance(response.output_parsed, Answer)
        assert (response.model_extra or {})["seed"] == seed
        assert response.text is not None and response.text.format is not None
        assert response.text.format.type == "json_schema"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"enum": [None, 5]}}}}, "null 5"),
        ({"guided_choice": ["yes", "no"]}, "yes no"),
        ({"text": {"format": {"type": "text"}}, "guided_regex": "a"}, "a"),
    ],
)
async def test_outputs_have_the_form_that_was_asked_for(
    client: AsyncOpenAI, body: dict[str, Any], expected: str
) -> None:
    response = await client.responses.create(model=MODEL, input="x", extra_body=body, max_output_tokens=50)
    conforms(response)
    assert response.status == "completed" and response.output_text in expected.split()
    if "name" in str(body):
        assert response.text is not None and response.text.format is not None
        assert response.text.format.to_dict() == body["text"]["format"]


async def test_json_object(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL, input="x", text={"format": {"type": "json_object"}}, max_output_tokens=300
    )
    assert response.output_text.startswith("{")


async def test_a_function_is_called_and_its_answer_taken_in(client: AsyncOpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    options: Any = {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 400}
    for seed in range(3):
        response = await client.responses.parse(
            model=MODEL, input=items, parallel_tool_calls=False, extra_body={"seed": seed}, **options
        )
        conforms(response)
        (call,) = response.output
        assert isinstance(call, ResponseFunctionToolCall) and response.status == "completed"
        assert (call.name, call.status) == ("weather", "completed")
        assert isinstance(call.parsed_arguments, Weather)  # type: ignore[union-attr]
        assert call.call_id.startswith("call_") and call.id is not None and call.id.startswith("fc_")
        items += [call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    answer = await client.responses.create(model=MODEL, input=items, tools=[CLOCK], max_output_tokens=4)
    assert answer.status in ("completed", "incomplete")


async def test_several_calls_are_items_in_a_row(client: AsyncOpenAI) -> None:
    named: Any = {"type": "function", "name": "clock"}
    tools: list[Any] = [CLOCK, {"type": "function", "name": "date", "parameters": SCHEMA, "strict": None}]
    response = await client.responses.create(
        model=MODEL, input="x", tools=tools, tool_choice="required", max_output_tokens=200, extra_body={"seed": 5}
    )
    assert len(response.output) > 1
    assert {item.type for item in response.output} == {"function_call"}
    assert len({item.id for item in response.output}) == len(response.output)
    once = await client.responses.create(model=MODEL, input="x", tools=tools, tool_choice=named, max_output_tokens=200)
    (call,) = once.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments)) == ("clock", {})


async def test_only_allowed_functions_are_called(client: AsyncOpenAI) -> None:
    tools: list[Any] = [CLOCK, {"type": "function", "name": "date", "parameters": SCHEMA, "strict": None}]
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "date"}]}
    response = await client.responses.create(
        model=MODEL, input="x", tools=tools, tool_choice=allowed, max_output_tokens=200, extra_body={"seed": 5}
    )
    assert {item.name for item in response.output if item.type == "function_call"} == {"date"}
    assert response.tool_choice.to_dict() == allowed  # type: ignore[union-attr]
    assert len(response.tools) == len(tools)


async def test_without_being_forced_the_model_may_answer_in_words(client: AsyncOpenAI) -> None:
    for choice in ("auto", "none"):
        response = await client.responses.create(
            **GREEDY, input="x", tools=[CLOCK], tool_choice=choice, max_output_tokens=12
        )
        assert [item.type for item in response.output] == ["message"]


async def test_extensions(client: AsyncOpenAI) -> None:
    """vLLM's and our own, as chat has them."""
    body = {"num_speculative_tokens": 2, "rule": "coupled", "drafter": "ngram", "min_tokens": 12, "top_k": 5, "seed": 3}
    body |= {"include_rounds": True, "best_of": 2, "n": 1, "chat_template_kwargs": {"x": 1}}
    response = await client.responses.create(model=MODEL, input="x", max_output_tokens=12, extra_body=body)
    extra: Any = response.model_extra
    measured = extra["metrics"]["speculative_decoding"]
    assert (measured["rule"], measured["drafter"], measured["adaptive"]) == ("coupled", "ngram", False)
    assert extra["metrics"]["sampling"]["top_k"] == 5
    texts = [token["text"] for entry in extra["specpair"]["rounds"] for token in entry["tokens"]]
    assert "".join(texts) == response.output_text
    assert response.usage is not None and response.usage.output_tokens == 24, "best_of costs what it generates"
    beams = await client.responses.create(model=MODEL, input="x", max_output_tokens=4, extra_body={"num_beams": 2})
    assert (beams.model_extra or {})["beam_score"] < 0


async def test_a_continued_message_has_what_is_new(client: AsyncOpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "import"}]
    options: dict[str, Any] = {**GREEDY, "extra_body": {"continue_final_message": True}}
    response = await client.responses.create(**options, input=items, max_output_tokens=6)
    chat = await client.chat.completions.create(**options, messages=items, max_tokens=6)
    assert response.output_text == chat.choices[0].message.content
